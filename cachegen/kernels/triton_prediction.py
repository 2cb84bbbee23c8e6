"""Prediction of symbols on a GPU: the Triton twin of ``cachegen.kernels.prediction``, bit for bit."""

from __future__ import annotations

import torch
import triton.language as tl

from cachegen.kernels.prediction import PREDICTED_LARGEST, WEIGHT_BITS
from cachegen.kernels.triton_jit import kernel, tiles

# One coefficient for each thread, which so reads what itself has written.
BLOCK = 128
LAUNCH = {"num_warps": 4}
_BITS, _LARGEST = tl.constexpr(WEIGHT_BITS), tl.constexpr(PREDICTED_LARGEST)
_HALF = tl.constexpr(1 << (WEIGHT_BITS - 1))


@kernel
def add_kernel(
    coefficients: tl.tensor,
    stride: tl.tensor,
    predicted: tl.tensor,
    columns: tl.tensor,
    weights: tl.tensor,
    ranks: tl.tensor,
    residuals: tl.tensor,
    block: tl.constexpr,
) -> None:
    """Symbols of some coefficients, token by token."""
    row = tl.program_id(0) * block + tl.arange(0, block)
    of_row = residuals + row.to(tl.int64) * stride
    for at in range(predicted):
        inside = (row < coefficients) & (row < tl.load(ranks + at))
        own = of_row + tl.load(columns + 3 * at)
        first = tl.load(of_row + tl.load(columns + 3 * at + 1), mask=inside, other=0).to(tl.int64)
        second = tl.load(of_row + tl.load(columns + 3 * at + 2), mask=inside, other=0).to(tl.int64)
        sums = tl.load(weights + 2 * at) * first + tl.load(weights + 2 * at + 1) * second
        value = tl.load(own, mask=inside, other=0).to(tl.int64) + ((sums + _HALF) >> _BITS)
        tl.store(own, tl.minimum(tl.maximum(value, -_LARGEST), _LARGEST), mask=inside)


def add_predictions(residuals: torch.Tensor, columns: torch.Tensor, weights: torch.Tensor, ranks: torch.Tensor) -> None:
    """See ``cachegen.kernels.prediction``; symbols of one row lie next to each other."""
    coefficients = len(residuals)
    add_kernel[(tiles(coefficients, BLOCK),)](
        coefficients, residuals.stride(0), len(ranks), columns, weights, ranks, residuals, block=BLOCK, **LAUNCH
    )
