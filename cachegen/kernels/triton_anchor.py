"""Anchors and deltas on a GPU: torch tensors in, torch tensors out, all on one device.

``x`` and ``out`` are ``(rows, tokens, heads, head_dim)``, float32, float16 or bfloat16, at any strides; all
other tensors are contiguous.
"""

from __future__ import annotations

from typing import Any

import torch

from cachegen.kernels.anchor import num_deltas, num_groups
from cachegen.kernels.triton_jit import elements, tiles
from cachegen.kernels.triton_quantize import (
    CHANNELS_TILE,
    LAUNCH,
    SCALES_BLOCK,
    SQUARES_BLOCK,
    SUMS_LAUNCH,
    TOKENS_TILE,
    TOTALS_BLOCK,
    anchors_kernel,
    deltas_kernel,
    reconstruct_kernel,
    scales_kernel,
    squares_kernel,
    totals_kernel,
)


def quantize_anchors(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Scales ``(rows, groups)`` as uint16 and symbols ``(rows, channels, groups)``, every token taken as an anchor."""
    rows, groups, heads, head_dim = x.shape
    channels = heads * head_dim
    scale_bits = torch.empty((rows, groups), dtype=torch.uint16, device=x.device)
    shape = (groups, channels, head_dim)
    source = (elements(x), *x.stride())
    bfloat16 = x.dtype == torch.bfloat16
    scales_kernel[(rows * groups,)](*source, *shape, scale_bits, is_bfloat16=bfloat16, block=SCALES_BLOCK, **LAUNCH)
    symbols = torch.empty((rows, channels, groups), dtype=torch.int32, device=x.device)
    anchors_kernel[_tile_grid(rows, groups, channels)](*source, *shape, scale_bits, symbols, **_tile_options(x))
    return scale_bits, symbols


def sum_squares(x: torch.Tensor, scale_bits: torch.Tensor) -> torch.Tensor:
    """Sum of squared deltas of each row of ``x``, float64 ``(rows,)``, in the order that the format fixes."""
    rows, tokens, heads, head_dim = x.shape
    channels = heads * head_dim
    sums = torch.empty((channels, rows), dtype=torch.float64, device=x.device)
    squares_kernel[(rows * tiles(channels, SQUARES_BLOCK),)](
        elements(x),
        *x.stride(),
        rows,
        tokens,
        channels,
        head_dim,
        scale_bits,
        sums,
        is_bfloat16=x.dtype == torch.bfloat16,
        block=SQUARES_BLOCK,
        **SUMS_LAUNCH,
    )
    totals = torch.empty(rows, dtype=torch.float64, device=x.device)
    totals_kernel[(tiles(rows, TOTALS_BLOCK),)](sums, rows, channels, totals, block=TOTALS_BLOCK, **SUMS_LAUNCH)
    return totals


def quantize_deltas(
    x: torch.Tensor, scale_bits: torch.Tensor, anchors: torch.Tensor, bins: torch.Tensor
) -> torch.Tensor:
    """Symbols ``(rows, channels, deltas)``, with float32 bins ``(rows,)``."""
    rows, tokens, heads, head_dim = x.shape
    channels, groups, deltas = heads * head_dim, num_groups(tokens), num_deltas(tokens)
    symbols = torch.empty((rows, channels, deltas), dtype=torch.int32, device=x.device)
    if deltas:
        deltas_kernel[_tile_grid(rows, deltas, channels)](
            elements(x),
            *x.stride(),
            deltas,
            channels,
            head_dim,
            scale_bits,
            anchors,
            groups,
            bins,
            symbols,
            **_tile_options(x),
        )
    return symbols


def reconstruct(
    scale_bits: torch.Tensor, anchors: torch.Tensor, bins: torch.Tensor, deltas: torch.Tensor, out: torch.Tensor
) -> None:
    """Fill ``out`` with the values of the symbols, clamped to the finite range of its dtype and rounded to it."""
    rows, tokens, heads, head_dim = out.shape
    channels = heads * head_dim
    reconstruct_kernel[_tile_grid(rows, tokens, channels)](
        scale_bits,
        anchors,
        num_groups(tokens),
        bins,
        deltas,
        num_deltas(tokens),
        torch.finfo(out.dtype).max,
        channels,
        head_dim,
        elements(out),
        *out.stride(),
        **_tile_options(out),
    )


def _tile_grid(rows: int, tokens: int, channels: int) -> tuple[int]:
    return (rows * tiles(tokens, TOKENS_TILE) * tiles(channels, CHANNELS_TILE),)


def _tile_options(values: torch.Tensor) -> dict[str, Any]:
    bfloat16 = values.dtype == torch.bfloat16
    return {"is_bfloat16": bfloat16, "tokens_tile": TOKENS_TILE, "channels_tile": CHANNELS_TILE, **LAUNCH}
