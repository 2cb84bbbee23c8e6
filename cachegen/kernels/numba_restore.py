"""From products with a basis to the chunk tensor: the Numba twin of ``cachegen.kernels.triton_restore``."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from cachegen.kernels.base import Turns
from cachegen.kernels.cast import bfloat16_bits, flat, float16_bits
from cachegen.kernels.jit import kernel
from cachegen.kernels.workers import share_among_threads

Array = npt.NDArray[Any]
# Elements that take longer to restore than a thread takes to wake up.
_WORTH_A_THREAD = 1 << 16
_CODES = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 2}


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
    """See ``Backend``."""
    heads, _, head_dim = x.shape
    assert x.stride(2) == 1
    assert out.stride(3) == 1
    unturned = np.zeros((1, 1, head_dim), dtype=np.float32)
    cos, sin, partners, kinds = (
        (unturned, unturned, np.zeros((1, head_dim), dtype=np.int32), np.zeros(1, dtype=np.int32))
        if turns is None
        else (turns.cos.numpy(), turns.sin.numpy(), turns.partners.numpy(), turns.kind_of_head.numpy())
    )

    def work(which: slice) -> None:
        _restore_kernel(
            which.start,
            which.stop,
            first_head,
            flat(x),
            x.stride(0),
            x.stride(1),
            head_dim,
            steps.numpy(),
            factors.numpy(),
            means.numpy(),
            turns is not None,
            cos,
            sin,
            partners,
            kinds,
            torch.finfo(out.dtype).max,
            coded.numpy(),
            flat(out if out.dtype == torch.float32 else out.view(torch.uint16)),
            out.shape[2],
            (out.stride(0), out.stride(1), out.stride(2)),
            _CODES[out.dtype],
        )

    if x.numel() > _WORTH_A_THREAD:
        share_among_threads(work, heads)
    else:
        work(slice(0, heads))


@kernel
def _restore_kernel(
    first: int,
    end: int,
    first_head: int,
    x: Array,
    head_stride: int,
    token_stride: int,
    head_dim: int,
    steps: Array,
    factors: Array,
    means: Array,
    turn: bool,
    cos: Array,
    sin: Array,
    partners: Array,
    kinds: Array,
    largest: float,
    coded: Array,
    out: Array,
    kv_heads: int,
    strides: tuple[int, int, int],
    code: int,
) -> None:
    """Heads ``first..end-1`` of ``x``; ``code`` says which type the bits in ``out`` have."""
    limit = np.float32(largest)
    values = np.empty(head_dim, dtype=np.float32)
    turned = np.empty(head_dim, dtype=np.float32)
    for part in range(first, end):
        head = first_head + part
        mean = means[head]
        for token in range(len(steps)):
            factor = factors[head] * steps[token]
            row = x[part * head_stride + token * token_stride :][:head_dim]
            for dim in range(head_dim):
                values[dim] = mean[dim] + factor * row[dim]
            result = values
            if turn:
                kind = kinds[head]
                cosine, sine, partner = cos[kind, token], sin[kind, token], partners[kind]
                for dim in range(head_dim):
                    turned[dim] = cosine[dim] * values[dim] + sine[dim] * values[partner[dim]]
                result = turned
            at = head // kv_heads * strides[0] + coded[token] * strides[1] + head % kv_heads * strides[2]
            into = out[at : at + head_dim]
            for dim in range(head_dim):
                result[dim] = min(max(result[dim], -limit), limit)
            bits = result.view(np.uint32)
            if code == 0:
                for dim in range(head_dim):
                    into[dim] = result[dim]
            elif code == 1:
                for dim in range(head_dim):
                    into[dim] = float16_bits(result[dim], bits[dim])
            else:
                for dim in range(head_dim):
                    into[dim] = bfloat16_bits(bits[dim])
