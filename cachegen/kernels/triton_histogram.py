"""Counting symbols on a GPU: the Triton twin of ``cachegen.kernels.numba_rans.count_kernel``."""

from __future__ import annotations

import torch
import triton.language as tl

from cachegen.kernels.tables import ALPHABET, ESCAPE, VALUE_OFFSET
from cachegen.kernels.triton_jit import kernel

BLOCK = 512
LAUNCH = {"num_warps": 4}

_ALPHABET = tl.constexpr(ALPHABET)
_ESCAPE = tl.constexpr(ESCAPE)
_OFFSET = tl.constexpr(VALUE_OFFSET)


@kernel
def count_kernel(symbols: tl.tensor, tokens: tl.tensor, counts: tl.tensor, block: tl.constexpr) -> None:
    """Add the symbols of one channel to its 256 counts."""
    channel = tl.program_id(0).to(tl.int64)
    symbols += channel * tokens
    counts += channel * _ALPHABET + tl.arange(0, _ALPHABET)
    found = tl.full((_ALPHABET,), 0, tl.int32)
    for base in range(0, tokens, block):
        token = base + tl.arange(0, block)
        inside = token < tokens
        index = tl.load(symbols + token, mask=inside, other=0) + _OFFSET
        index = tl.where((index >= 0) & (index < _ESCAPE), index, _ESCAPE)
        found += tl.histogram(index, _ALPHABET, mask=inside)
    tl.store(counts, tl.load(counts) + found.to(tl.uint32))


def count(symbols: torch.Tensor, counts: torch.Tensor) -> None:
    """Add ``symbols (rows, channels, tokens)``, int32, to ``counts (rows, channels, 256)``, uint32; both contiguous."""
    rows, channels, tokens = symbols.shape
    count_kernel[(rows * channels,)](symbols, tokens, counts, block=BLOCK, **LAUNCH)
