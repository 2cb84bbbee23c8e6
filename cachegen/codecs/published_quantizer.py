"""The quantizer of the published CacheGen code (commit 6bed34c): each token by its largest magnitude, in float32."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from cachegen.errors import FormatError
from cachegen.kernels.base import F32
from cachegen.kernels.range_coder import U8
from cachegen.kernels.scales import round_up_scales, scale_values

_BFLOAT16_LARGEST = 0x7F7F


def token_scales(x: F32, dtype: torch.dtype) -> tuple[npt.NDArray[np.uint16], F32]:
    """Largest magnitude of each token of ``x (rows, tokens, channels)``: its 16 bits and its value, ``(rows, tokens)``.

    Exact in the tensor's own dtype; that of a float32 tensor, which the published code never meets, is rounded up to
    bfloat16, or down to its largest finite number.
    """
    largest = np.abs(x).max(axis=2)
    if dtype == torch.float16:
        return largest.astype(np.float16).view(np.uint16), largest
    bits = np.minimum(round_up_scales(largest, 1), np.uint16(_BFLOAT16_LARGEST))
    return bits, scale_values(bits)


def quantize(x: F32, scales: F32, largest: int) -> U8:
    """Symbols ``(channels, tokens)`` of one row's ``x (tokens, channels)``: ``round(x * (M / scale) + M)`` in 0..2M.

    ``largest`` is M; halves go to even. A token of zeros has the symbol M throughout. A scale below 2**-122, whose
    quotient overflows, gets the largest quotient there is.
    """
    divisors = np.where(scales > 0, scales, 1).astype(np.float64)
    factors = np.minimum(largest / divisors, np.finfo(np.float32).max).astype(np.float32)
    symbols = x * factors[:, None]
    symbols += np.float32(largest)
    return np.ascontiguousarray(np.rint(symbols, out=symbols).astype(np.uint8).T)


def dequantize(symbols: U8, scales: F32, largest: int) -> F32:
    """Values ``(tokens, channels)`` of one row's ``symbols (channels, tokens)``: ``(symbol - M) / M * scale``.

    Raises
    ------
    FormatError
        A symbol above 2M, to which the row's tables may give room nevertheless.
    """
    if int(symbols.max()) > 2 * largest:
        raise FormatError(f"symbol {symbols.max()}, at most {2 * largest}")
    x = symbols.T.astype(np.float32, order="C")
    x -= np.float32(largest)
    x /= np.float32(largest)
    x *= scales[:, None]
    return x
