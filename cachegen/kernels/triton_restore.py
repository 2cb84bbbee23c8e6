"""From products with a basis to the cache: the last stages of the ``transform`` codec in one pass over its output.

Means, rotary turn, clamp, cast and store, for heads of one half (K or V) of a chunk. Sums of products before it are the
matrix library's; this stage is float32 arithmetic, without an order that the format fixes.
"""

from __future__ import annotations

import torch
import triton.language as tl

from cachegen.kernels.base import Turns
from cachegen.kernels.triton_jit import elements, kernel, store_float32, tiles

TOKENS_TILE = 32
DIMS_TILE = 64
LAUNCH = {"num_warps": 4}


@kernel
def restore_kernel(
    x: tl.tensor,
    x_head_stride: tl.tensor,
    x_token_stride: tl.tensor,
    tokens: tl.tensor,
    head_dim: tl.tensor,
    steps: tl.tensor,
    factors: tl.tensor,
    means: tl.tensor,
    cos: tl.tensor,
    sin: tl.tensor,
    partners: tl.tensor,
    kind_of_head: tl.tensor,
    largest: tl.tensor,
    first_head: tl.tensor,
    kv_heads: tl.tensor,
    coded: tl.tensor,
    out: tl.tensor,
    layer_stride: tl.tensor,
    token_stride: tl.tensor,
    head_stride: tl.tensor,
    dim_stride: tl.tensor,
    turn: tl.constexpr,
    is_bfloat16: tl.constexpr,
    tokens_tile: tl.constexpr,
    dims_tile: tl.constexpr,
) -> None:
    """Values of one tile of one head."""
    program = tl.program_id(0)
    dim_tiles = tl.cdiv(head_dim, dims_tile)
    dim = (program % dim_tiles * dims_tile + tl.arange(0, dims_tile))[None, :]
    program = program // dim_tiles
    token_tiles = tl.cdiv(tokens, tokens_tile)
    token = (program % token_tiles * tokens_tile + tl.arange(0, tokens_tile)).to(tl.int64)[:, None]
    part = (program // token_tiles).to(tl.int64)
    head = part + first_head
    inside = (token < tokens) & (dim < head_dim)

    x += part * x_head_stride + token * x_token_stride
    means += head * head_dim
    factor = tl.load(factors + head) * tl.load(steps + token, mask=token < tokens, other=0)
    value = tl.load(means + dim, mask=dim < head_dim, other=0) + factor * tl.load(x + dim, mask=inside, other=0)
    if turn:
        kind = tl.load(kind_of_head + head).to(tl.int64)
        partner = tl.load(partners + kind * head_dim + dim, mask=dim < head_dim, other=0)
        other = tl.load(means + partner, mask=dim < head_dim, other=0)
        other += factor * tl.load(x + partner, mask=inside, other=0)
        at = (kind * tokens + token) * head_dim + dim
        turned = tl.load(sin + at, mask=inside, other=0) * other
        value = tl.load(cos + at, mask=inside, other=0) * value + turned
    value = tl.minimum(tl.maximum(value, -largest), largest)
    place = tl.load(coded + token, mask=token < tokens, other=0)
    offset = head // kv_heads * layer_stride + head % kv_heads * head_stride + place * token_stride + dim * dim_stride
    store_float32(out + offset, value, inside, is_bfloat16)


def restore(
    x: torch.Tensor,
    first_head: int,
    steps: torch.Tensor,
    factors: torch.Tensor,
    means: torch.Tensor,
    turns: Turns | None,
    coded: torch.Tensor,
    out: torch.Tensor,
) -> None:
    """See ``Backend``; elements of ``out`` lie at any strides."""
    heads, tokens, head_dim = x.shape
    programs = heads * tiles(tokens, TOKENS_TILE) * tiles(head_dim, DIMS_TILE)
    turning = (
        (means, means, coded, coded) if turns is None else (turns.cos, turns.sin, turns.partners, turns.kind_of_head)
    )
    restore_kernel[(programs,)](
        x,
        x.stride(0),
        x.stride(1),
        tokens,
        head_dim,
        steps,
        factors,
        means,
        *turning,
        torch.finfo(out.dtype).max,
        first_head,
        out.shape[2],
        coded,
        elements(out),
        *out.stride(),
        turn=turns is not None,
        is_bfloat16=out.dtype == torch.bfloat16,
        tokens_tile=TOKENS_TILE,
        dims_tile=DIMS_TILE,
        **LAUNCH,
    )
