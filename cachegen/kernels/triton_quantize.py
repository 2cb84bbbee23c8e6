"""Anchors and deltas for GPUs: the Triton twin of ``cachegen.kernels.anchor``, bit for bit.

Tensors of values are ``(rows, tokens, heads, head_dim)`` in float32, float16 or bfloat16 and lie at any strides, so
that a chunk is read from and written to whatever cache the caller has; symbols are contiguous, in coding order. Offsets
are 64-bit. Programs are counted along one axis, since the others end at 65,535.
"""

from __future__ import annotations

import triton.language as tl

from cachegen.kernels.anchor import ANCHOR_LARGEST, GROUP_TOKENS
from cachegen.kernels.triton_jit import EXACT, channel_offset, kernel, load_float64, rint, store_float32

SCALES_BLOCK = 1024
SQUARES_BLOCK = 64
TOTALS_BLOCK = 32
TOKENS_TILE = 32
CHANNELS_TILE = 64
LAUNCH = {"num_warps": 4, **EXACT}
SUMS_LAUNCH = {"num_warps": 1, **EXACT}

_GROUP = tl.constexpr(GROUP_TOKENS)
_LARGEST = tl.constexpr(float(ANCHOR_LARGEST))


@kernel
def _scale_value(bits: tl.tensor) -> tl.tensor:
    return (bits.to(tl.uint32) << 16).to(tl.float32, bitcast=True).to(tl.float64)


@kernel
def _quotient(value: tl.tensor, divisor: tl.tensor) -> tl.tensor:
    """Nearest integer of a quotient, where a divisor of 0 has only values of 0."""
    return rint(value / tl.where(divisor > 0, divisor, 1.0))


@kernel
def scales_kernel(
    x: tl.tensor,
    row_stride: tl.tensor,
    token_stride: tl.tensor,
    head_stride: tl.tensor,
    dim_stride: tl.tensor,
    groups: tl.tensor,
    channels: tl.tensor,
    head_dim: tl.tensor,
    scale_bits: tl.tensor,
    is_bfloat16: tl.constexpr,
    block: tl.constexpr,
) -> None:
    """Scale of one token: see ``cachegen.kernels.scales.round_up_scales``."""
    program = tl.program_id(0).to(tl.int64)
    x += program // groups * row_stride + program % groups * token_stride
    largest = tl.full((block,), 0, tl.float64)
    for base in range(0, channels, block):
        channel = base + tl.arange(0, block)
        offset = channel_offset(channel, head_dim, head_stride, dim_stride)
        largest = tl.maximum(largest, tl.abs(load_float64(x + offset, channel < channels, is_bfloat16)))
    wanted = tl.max(largest, axis=0) / _LARGEST
    bits = (wanted.to(tl.float32).to(tl.uint32, bitcast=True) + 0xFFFF) >> 16
    bits += (_scale_value(bits) < wanted).to(tl.uint32)
    tl.store(scale_bits + program, bits.to(tl.uint16))


@kernel
def anchors_kernel(
    x: tl.tensor,
    row_stride: tl.tensor,
    token_stride: tl.tensor,
    head_stride: tl.tensor,
    dim_stride: tl.tensor,
    groups: tl.tensor,
    channels: tl.tensor,
    head_dim: tl.tensor,
    scale_bits: tl.tensor,
    symbols: tl.tensor,
    is_bfloat16: tl.constexpr,
    tokens_tile: tl.constexpr,
    channels_tile: tl.constexpr,
) -> None:
    """Symbols ``(rows, channels, groups)`` of one tile of one row."""
    row, group, channel = _tile(groups, channels, tokens_tile, channels_tile)
    inside = (group < groups) & (channel < channels)
    offset = row * row_stride + group * token_stride + channel_offset(channel, head_dim, head_stride, dim_stride)
    scale = _scale_value(tl.load(scale_bits + row * groups + group, mask=group < groups, other=0))
    symbol = _quotient(load_float64(x + offset, inside, is_bfloat16), scale)
    tl.store(symbols + (row * channels + channel) * groups + group, symbol, mask=inside)


@kernel
def squares_kernel(
    x: tl.tensor,
    row_stride: tl.tensor,
    token_stride: tl.tensor,
    head_stride: tl.tensor,
    dim_stride: tl.tensor,
    rows: tl.tensor,
    tokens: tl.tensor,
    channels: tl.tensor,
    head_dim: tl.tensor,
    scale_bits: tl.tensor,
    sums: tl.tensor,
    is_bfloat16: tl.constexpr,
    block: tl.constexpr,
) -> None:
    """Sums over tokens of squared deltas for some channels of one row, in the order of tokens; ``(channels, rows)``."""
    blocks = tl.cdiv(channels, block)
    row = (tl.program_id(0) // blocks).to(tl.int64)
    channel = tl.program_id(0) % blocks * block + tl.arange(0, block)
    inside = channel < channels
    x += row * row_stride
    offset = channel_offset(channel, head_dim, head_stride, dim_stride)
    groups = tl.cdiv(tokens, _GROUP)
    total = tl.full((block,), 0, tl.float64)
    for group in range(groups):
        token = tl.full((), _GROUP, tl.int64) * group
        scale = _scale_value(tl.load(scale_bits + row * groups + group))
        anchor = _quotient(load_float64(x + token * token_stride + offset, inside, is_bfloat16), scale)
        value = anchor.to(tl.float64) * scale
        for step in range(1, tl.minimum(_GROUP, tokens - group * _GROUP)):
            delta = load_float64(x + (token + step) * token_stride + offset, inside, is_bfloat16) - value
            total += delta * delta
    tl.store(sums + channel.to(tl.int64) * rows + row, total, mask=inside)


@kernel
def totals_kernel(
    sums: tl.tensor, rows: tl.tensor, channels: tl.tensor, totals: tl.tensor, block: tl.constexpr
) -> None:
    """Sums over channels of ``sums (channels, rows)``, in the order of channels."""
    row = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    total = tl.full((block,), 0, tl.float64)
    sums += row
    for _ in range(channels):
        total += tl.load(sums, mask=row < rows, other=0)
        sums += rows
    tl.store(totals + row, total, mask=row < rows)


@kernel
def deltas_kernel(
    x: tl.tensor,
    row_stride: tl.tensor,
    token_stride: tl.tensor,
    head_stride: tl.tensor,
    dim_stride: tl.tensor,
    deltas: tl.tensor,
    channels: tl.tensor,
    head_dim: tl.tensor,
    scale_bits: tl.tensor,
    anchors: tl.tensor,
    groups: tl.tensor,
    bins: tl.tensor,
    symbols: tl.tensor,
    is_bfloat16: tl.constexpr,
    tokens_tile: tl.constexpr,
    channels_tile: tl.constexpr,
) -> None:
    """Symbols ``(rows, channels, deltas)`` of one tile of one row."""
    row, at, channel = _tile(deltas, channels, tokens_tile, channels_tile)
    inside = (at < deltas) & (channel < channels)
    group = at // (_GROUP - 1)
    token = group * _GROUP + 1 + at % (_GROUP - 1)
    offset = row * row_stride + token * token_stride + channel_offset(channel, head_dim, head_stride, dim_stride)
    scale = _scale_value(tl.load(scale_bits + row * groups + group, mask=at < deltas, other=0))
    anchor = tl.load(anchors + (row * channels + channel) * groups + group, mask=inside, other=0)
    delta = load_float64(x + offset, inside, is_bfloat16) - anchor.to(tl.float64) * scale
    symbol = _quotient(delta, tl.load(bins + row).to(tl.float64))
    tl.store(symbols + (row * channels + channel) * deltas + at, symbol, mask=inside)


@kernel
def reconstruct_kernel(
    scale_bits: tl.tensor,
    anchors: tl.tensor,
    groups: tl.tensor,
    bins: tl.tensor,
    symbols: tl.tensor,
    deltas: tl.tensor,
    largest: tl.tensor,
    channels: tl.tensor,
    head_dim: tl.tensor,
    out: tl.tensor,
    row_stride: tl.tensor,
    token_stride: tl.tensor,
    head_stride: tl.tensor,
    dim_stride: tl.tensor,
    is_bfloat16: tl.constexpr,
    tokens_tile: tl.constexpr,
    channels_tile: tl.constexpr,
) -> None:
    """Values of one tile of one row, clamped to ``+-largest``."""
    tokens = groups + deltas
    row, token, channel = _tile(tokens, channels, tokens_tile, channels_tile)
    inside = (token < tokens) & (channel < channels)
    group, step = token // _GROUP, token % _GROUP
    scale = _scale_value(tl.load(scale_bits + row * groups + group, mask=token < tokens, other=0))
    anchor = tl.load(anchors + (row * channels + channel) * groups + group, mask=inside, other=0)
    value = anchor.to(tl.float64) * scale
    at = (row * channels + channel) * deltas + token - group - 1
    symbol = tl.load(symbols + at, mask=inside & (step > 0), other=0)
    step_value = value + symbol.to(tl.float64) * tl.load(bins + row).to(tl.float64)
    value = tl.where(step > 0, step_value, value)
    value = tl.minimum(tl.maximum(value, -largest), largest).to(tl.float32)
    offset = row * row_stride + token * token_stride + channel_offset(channel, head_dim, head_stride, dim_stride)
    store_float32(out + offset, value, inside, is_bfloat16)


@kernel
def _tile(tokens: tl.tensor, channels: tl.tensor, tokens_tile: tl.constexpr, channels_tile: tl.constexpr) -> tl.tensor:
    """Row, tokens ``(1, tile)`` and channels ``(tile, 1)`` of this program: tiles of channels next to each other."""
    program = tl.program_id(0)
    channel_tiles = tl.cdiv(channels, channels_tile)
    channel = program % channel_tiles * channels_tile + tl.arange(0, channels_tile)
    program = program // channel_tiles
    token_tiles = tl.cdiv(tokens, tokens_tile)
    token = program % token_tiles * tokens_tile + tl.arange(0, tokens_tile)
    row = (program // token_tiles).to(tl.int64)
    return row, token.to(tl.int64)[None, :], channel[:, None]
