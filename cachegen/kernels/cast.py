"""Float32 values into a tensor of any KV dtype, rounded half to even, on the calling thread alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from cachegen.kernels.jit import kernel

Array = npt.NDArray[Any]


def store(x: npt.NDArray[np.float32], out: torch.Tensor) -> None:
    """Write ``x (rows, tokens, channels)`` to ``out`` of the same shape; values are in range of its dtype.

    PyTorch would bring a team of threads for each piece, while this is called from several threads at once.
    """
    if out.dtype == torch.bfloat16:
        _bfloat16_kernel(x, out.view(torch.uint16).numpy())
    else:
        out.numpy()[...] = x


@kernel
def _bfloat16_kernel(x: Array, out: Array) -> None:
    rows, num_tokens, channels = x.shape
    for row in range(rows):
        bits, into = x[row].view(np.uint32), out[row]
        for token in range(num_tokens):
            for channel in range(channels):
                value = bits[token, channel]
                odd = (value >> np.uint32(16)) & np.uint32(1)
                into[token, channel] = np.uint16((value + np.uint32(0x7FFF) + odd) >> np.uint32(16))
