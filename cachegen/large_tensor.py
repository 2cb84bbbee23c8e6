"""Memory for tensors of many megabytes."""

import math
from collections.abc import Sequence

import numpy as np
import torch


def new_tensor(shape: Sequence[int], dtype: torch.dtype, device: torch.device | str) -> torch.Tensor:
    """A contiguous tensor with whatever its memory holds, to be filled at once.

    On a CPU it is NumPy's memory, in huge pages where the system has any: writing to it first takes a quarter of the
    time that it takes with PyTorch's.
    """
    if torch.device(device).type != "cpu" or 0 in shape:
        return torch.empty(shape, dtype=dtype, device=device)
    memory = torch.from_numpy(np.empty(math.prod(shape) * dtype.itemsize, dtype=np.uint8)).untyped_storage()
    # no view of another tensor: a caller may do with it what may be done with any
    strides = torch.empty(shape, device="meta").stride()
    return torch.empty(0, dtype=dtype, device="cpu").set_(memory, 0, shape, strides)
