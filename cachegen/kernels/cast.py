"""Float32 values into a tensor of any KV dtype, rounded half to even, on the calling thread alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from cachegen.kernels.jit import kernel

Array = npt.NDArray[Any]

_SIGN = np.uint32(0x8000)
_MAGNITUDE = np.uint32(0x7FFFFFFF)
# Below 2**-14 float16 is subnormal, a multiple of 2**-24.
_SMALLEST_NORMAL = np.uint32(0x38800000)
_SUBNORMALS = np.float32(2**24)
# Moves the exponent's origin from 127 to 15, and adds all but one of half a step.
_REBASE = np.uint32(0xC8000FFF)


def store(x: npt.NDArray[np.float32], out: torch.Tensor) -> None:
    """Write ``x (rows, tokens, channels)`` to ``out (rows, tokens, heads, head_dim)``, in range of its dtype.

    PyTorch would bring a team of threads for each piece, while this is called from several threads at once.
    """
    values = x.reshape(out.shape)
    if out.dtype == torch.bfloat16:
        strides = (out.stride(0), out.stride(1), out.stride(2))
        _bfloat16_kernel(values, flat(out.view(torch.uint16)), strides)
    else:
        out.numpy()[...] = values


def flat(tensor: torch.Tensor) -> Array:
    """All elements between the first and the last, so that a compiled kernel meets one array type."""
    extent = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    elements: Array = tensor.as_strided((extent,), (1,)).numpy()
    return elements


@kernel
def bfloat16_bits(bits: np.uint32) -> np.uint16:
    """A float32, given in bits, as bfloat16 in bits; it is finite, and in range."""
    return np.uint16((bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16))


@kernel
def float16_bits(value: np.float32, bits: np.uint32) -> np.uint16:
    """A float32, given as itself and in bits, as float16 in bits; it is finite, and in range."""
    magnitude = bits & _MAGNITUDE
    normal = (magnitude + _REBASE + ((magnitude >> np.uint32(13)) & np.uint32(1))) >> np.uint32(13)
    subnormal = np.uint32(np.rint(abs(value) * _SUBNORMALS))
    rounded = subnormal if magnitude < _SMALLEST_NORMAL else normal
    return np.uint16(((bits >> np.uint32(16)) & _SIGN) | rounded)


@kernel
def _bfloat16_kernel(x: Array, out: Array, strides: tuple[int, int, int]) -> None:
    rows, num_tokens, heads, head_dim = x.shape
    for row in range(rows):
        for token in range(num_tokens):
            for head in range(heads):
                at = row * strides[0] + token * strides[1] + head * strides[2]
                bits, into = x[row, token, head].view(np.uint32), out[at : at + head_dim]
                for dim in range(head_dim):
                    into[dim] = bfloat16_bits(bits[dim])
