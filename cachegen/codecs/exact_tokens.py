"""The section of a chunk's tokens that are stored as they are (docs/format.md)."""

from __future__ import annotations

import struct

import numpy as np
import numpy.typing as npt
import torch

from cachegen.errors import FormatError
from cachegen.kv import ChunkLayout, all_finite

_U32 = struct.Struct("<I")

Mask = npt.NDArray[np.bool_]


def write_exact(kv: torch.Tensor, exact: Mask) -> bytes:
    """Count, indices and elements ``(layers, 2, count, kv_heads, head_dim)`` of the tokens stored as they are.

    Float32 elements are stored as float16 where all are in its range: it errs far less than the finest level does.
    """
    indices = np.flatnonzero(exact)
    elements = kv[:, :, torch.from_numpy(indices)].contiguous().flatten()
    if elements.dtype == torch.float32 and bool((elements.abs() <= torch.finfo(torch.float16).max).all()):
        elements = elements.half()
    body = elements.view(torch.uint8).numpy().tobytes()
    return b"".join((_U32.pack(len(indices)), indices.astype("<u4").tobytes(), body))


def read_exact(body: memoryview, layout: ChunkLayout) -> tuple[Mask, torch.Tensor]:
    """Which tokens of a chunk are stored as they are, and their elements."""
    if len(body) < _U32.size:
        raise FormatError(f"{len(body)} bytes, too few for a count")
    (count,) = _U32.unpack_from(body)
    if count > layout.num_tokens:
        raise FormatError(f"{count} exact tokens in a chunk of {layout.num_tokens}")
    stored = _stored_dtype(len(body) - _U32.size * (1 + count), count, layout)
    indices = np.frombuffer(body, "<u4", count, _U32.size).astype(np.int64)
    if count and (int(indices[-1]) >= layout.num_tokens or bool((np.diff(indices) <= 0).any())):
        raise FormatError(f"exact tokens {indices.tolist()[:8]} do not rise below {layout.num_tokens}")
    exact = np.zeros(layout.num_tokens, dtype=bool)
    exact[indices] = True
    shape = layout.shape
    size = (shape.num_layers, 2, count, shape.num_kv_heads, shape.head_dim)
    elements = torch.empty(size, dtype=stored, device="cpu")
    if count:
        raw = np.frombuffer(body, np.uint8, offset=_U32.size * (1 + count))
        elements.view(-1).view(torch.uint8).numpy()[...] = raw
    if count and not all_finite(elements):
        raise FormatError("an exact token holds NaN or Inf")
    return exact, elements.to(layout.dtype.torch)


def _stored_dtype(num_bytes: int, count: int, layout: ChunkLayout) -> torch.dtype:
    """Type of the stored elements, by their bytes."""
    num_elements = layout.num_elements // layout.num_tokens * count
    if num_bytes == num_elements * layout.dtype.item_bytes:
        return layout.dtype.torch
    if num_bytes == num_elements * torch.float16.itemsize:
        return torch.float16
    raise FormatError(f"{num_bytes} bytes for {count} exact tokens of {num_elements} elements")
