"""The ``transform`` codec: keys un-rotated, decorrelated across heads and layers, uniformly quantized, entropy-coded.

Energy gathers in few coefficients, most of which are zero at every level but the finest. The profile brings all that
describes the model; a chunk holds symbols alone, and the tokens that are stored as they are.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import torch

from cachegen.codecs.base import CodecTables, check_section_ids
from cachegen.codecs.streams import read_streams, write_streams
from cachegen.codecs.transform_tables import TransformTables, Unit
from cachegen.errors import FormatError, UnsupportedModelError
from cachegen.kernels import get_backend
from cachegen.kernels.base import Backend, CodedStreams
from cachegen.kernels.products import expand
from cachegen.kernels.tables import FrequencyTables
from cachegen.kernels.uniform import LEVEL_STEPS, SYMBOL_LARGEST
from cachegen.kv import ChunkLayout

SECTION_EXACT_TOKENS = 8
SECTION_COEFFICIENTS = 9
# Attention sinks: later tokens look at the first ones far more than at any others.
SINK_TOKENS = 4
_U32 = struct.Struct("<I")

Mask = npt.NDArray[np.bool_]


class TransformCodec:
    """The codec of this project.

    Parameters
    ----------
    backend : str
        Name of the backend that runs the integer stages; all give the same bytes.
    """

    name = "transform"
    uses_tables = True

    def __init__(self, backend: str) -> None:
        self._backend_name = backend

    @property
    def _backend(self) -> Backend:
        return get_backend(self._backend_name)

    def encode(
        self, kv: torch.Tensor, level: int | None, tables: CodecTables | None, first_token: int
    ) -> dict[int, bytes]:
        """See ``Codec``."""
        assert level is not None
        transform = transform_of(tables)
        positions = first_token + np.arange(kv.shape[2])
        transform.rotary.check_span(first_token + kv.shape[2])
        x = forward(kv, transform, positions)
        coefficients = [project(x[int(unit.is_value)], transform, unit, level) for unit in transform.units]
        exact = positions < SINK_TOKENS
        for unit, y in zip(transform.units, coefficients, strict=True):
            exact |= ~representable(x[int(unit.is_value)], unit, y, LEVEL_STEPS[level])
        sections = {SECTION_EXACT_TOKENS: write_exact(kv, exact)}
        if not exact.all():
            sections[SECTION_COEFFICIENTS] = self._write_streams(coefficients, transform, level, ~exact)
        return sections

    def decode(
        self,
        sections: Mapping[int, memoryview],
        layout: ChunkLayout,
        level: int | None,
        tables: CodecTables | None,
        first_token: int,
    ) -> torch.Tensor:
        """See ``Codec``."""
        assert level is not None
        try:
            transform = transform_of(tables)
            transform.rotary.check_span(first_token + layout.num_tokens)
        except UnsupportedModelError as error:
            raise FormatError(f"codec {self.name}: its profile says that no such chunk was encoded: {error}") from error
        if SECTION_EXACT_TOKENS not in sections:
            check_section_ids(self.name, sections, (SECTION_EXACT_TOKENS, SECTION_COEFFICIENTS))
        try:
            exact, elements = read_exact(sections[SECTION_EXACT_TOKENS], layout)
        except FormatError as error:
            raise FormatError(f"codec {self.name}: section {SECTION_EXACT_TOKENS}: {error}") from error
        coded = np.flatnonzero(~exact)
        ids = (SECTION_EXACT_TOKENS, SECTION_COEFFICIENTS) if len(coded) else (SECTION_EXACT_TOKENS,)
        check_section_ids(self.name, sections, ids)
        try:
            x = self._read_streams(sections[SECTION_COEFFICIENTS], transform, level, len(coded)) if len(coded) else None
        except FormatError as error:
            raise FormatError(f"codec {self.name}: section {SECTION_COEFFICIENTS}: {error}") from error
        kv = torch.empty(layout.tensor_shape, dtype=layout.dtype.torch)
        if x is not None:
            backward(x, LEVEL_STEPS[level], transform, first_token + coded, kv, coded)
        kv[:, :, torch.from_numpy(np.flatnonzero(exact))] = elements
        return kv

    def _write_streams(
        self, coefficients: list[torch.Tensor], transform: TransformTables, level: int, coded: Mask
    ) -> bytes:
        parts = []
        for unit, (first, end), tables in transform.streams(level):
            y = coefficients[unit.index][first:end].numpy()
            symbols = self._backend.quantize_uniform(y if coded.all() else y[:, coded], LEVEL_STEPS[level])
            body = write_streams(self._backend.encode_streams(symbols[None], tables))
            parts += [_U32.pack(len(body)), body]
        return b"".join(parts)

    def _read_streams(
        self, body: memoryview, transform: TransformTables, level: int, num_tokens: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values ``(tokens, layers * channels)`` as ``forward`` gives them, in steps of the level."""
        units = self._parse_streams(body, transform, level, num_tokens)
        size = transform.shape.num_layers * transform.shape.channels
        x = torch.empty(num_tokens, size), torch.empty(num_tokens, size)
        for unit, streams in zip(transform.units, units, strict=True):
            symbols = [self._backend.decode_streams(coded, num_tokens, tables)[0] for coded, tables in streams]
            basis = torch.from_numpy(transform.bases[unit.index][: transform.ranks[level, unit.index]])
            part = expand(torch.from_numpy(np.concatenate(symbols)), basis)
            x[int(unit.is_value)][:, unit.first_channel : unit.end_channel] = part
        return x

    def _parse_streams(
        self, body: memoryview, transform: TransformTables, level: int, num_tokens: int
    ) -> list[list[tuple[CodedStreams, FrequencyTables]]]:
        """The streams of each unit, every length checked before anything is decoded."""
        units: list[list[tuple[CodedStreams, FrequencyTables]]] = [[] for _ in transform.units]
        at = 0
        for unit, _, tables in transform.streams(level):
            if at + _U32.size > len(body) or (size := _U32.unpack_from(body, at)[0]) > len(body) - at - _U32.size:
                raise FormatError(f"{len(body)} bytes end in the middle of a stream of unit {unit.index}")
            at += _U32.size
            units[unit.index].append((read_streams(body[at : at + size], num_tokens, tables, SYMBOL_LARGEST), tables))
            at += size
        if at != len(body):
            raise FormatError(f"{len(body)} bytes, its streams end at {at}")
        return units


def transform_of(tables: CodecTables | None) -> TransformTables:
    """Parameters of the codec; UnsupportedModelError says why a model has none."""
    assert tables is not None
    if isinstance(tables.transform, str):
        raise UnsupportedModelError(f"transform: {tables.transform}")
    return tables.transform


def forward(
    kv: torch.Tensor, transform: TransformTables, positions: npt.NDArray[np.int64]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and values ``(tokens, layers * channels)`` in the space where equal errors do equal harm, float32."""
    tokens, heads = kv.shape[2], kv.shape[0] * kv.shape[3]
    means = torch.from_numpy(transform.means)
    keys = transform.rotary.apply(kv[:, 0].float(), -positions)
    # (layers * kv_heads, tokens, head_dim)
    keys = keys.transpose(1, 2).reshape(heads, tokens, -1) - means[0].reshape(heads, 1, -1)
    keys = torch.bmm(keys, torch.from_numpy(transform.key_roots)).transpose(0, 1).reshape(tokens, -1)
    scales = torch.from_numpy(np.repeat(transform.value_scales, transform.shape.channels))
    values = kv[:, 1].float().transpose(0, 1).reshape(tokens, -1)
    return keys, (values - means[1]).mul_(scales)


def backward(
    x: tuple[torch.Tensor, torch.Tensor],
    step: float,
    transform: TransformTables,
    positions: npt.NDArray[np.int64],
    kv: torch.Tensor,
    coded: npt.NDArray[np.int64],
) -> None:
    """Inverse of ``forward`` on multiples of a step, into the ``coded`` tokens of a chunk tensor."""
    shape, tokens = transform.shape, len(positions)
    heads = shape.num_layers * shape.num_kv_heads
    means = torch.from_numpy(transform.means)
    keys = x[0].reshape(tokens, heads, shape.head_dim).transpose(0, 1)
    keys = torch.baddbmm(means[0].reshape(heads, 1, -1), keys, transform.inverse_key_roots, alpha=step)
    keys = keys.reshape(shape.num_layers, shape.num_kv_heads, tokens, shape.head_dim).transpose(1, 2)
    keys = transform.rotary.apply(keys, positions)
    scales = torch.from_numpy(np.repeat(transform.value_scales, shape.channels))
    values = torch.addcdiv(means[1], x[1], scales, value=step)
    values = values.reshape(tokens, shape.num_layers, shape.num_kv_heads, shape.head_dim).transpose(0, 1)
    finite = torch.finfo(kv.dtype)
    where = slice(coded[0], coded[-1] + 1) if coded[-1] - coded[0] == len(coded) - 1 else torch.from_numpy(coded)
    for half, part in enumerate((keys, values)):
        kv[:, half, where] = part.clamp_(finite.min, finite.max).to(kv.dtype)


def project(x: torch.Tensor, transform: TransformTables, unit: Unit, level: int) -> torch.Tensor:
    """Coefficients ``(rank, tokens)`` of one unit."""
    rank = int(transform.ranks[level, unit.index])
    basis = torch.from_numpy(transform.bases[unit.index][:rank]).float()
    return basis @ x[:, unit.first_channel : unit.end_channel].T


def representable(x: torch.Tensor, unit: Unit, y: torch.Tensor, step: float) -> Mask:
    """Which tokens a unit's coefficients describe: no symbol too large, and no more lost than a step an element.

    The first guards the coder's range. The second catches what no calibration text had: a token whose energy lies
    where the level codes nothing.
    """
    in_range = (y.abs() <= step * SYMBOL_LARGEST).all(dim=0)
    lost = x[:, unit.first_channel : unit.end_channel].square().sum(dim=1) - y.square().sum(dim=0)
    mask: Mask = (in_range & (lost <= unit.channels * step**2)).numpy()
    return mask


def write_exact(kv: torch.Tensor, exact: Mask) -> bytes:
    """Count, indices and elements ``(layers, 2, count, kv_heads, head_dim)`` of the tokens stored as they are."""
    indices = np.flatnonzero(exact)
    elements = kv[:, :, torch.from_numpy(indices)].contiguous().flatten().view(torch.uint8).numpy()
    return b"".join((_U32.pack(len(indices)), indices.astype("<u4").tobytes(), elements.tobytes()))


def read_exact(body: memoryview, layout: ChunkLayout) -> tuple[Mask, torch.Tensor]:
    """Which tokens of a chunk are stored as they are, and their elements."""
    if len(body) < _U32.size:
        raise FormatError(f"{len(body)} bytes, too few for a count")
    (count,) = _U32.unpack_from(body)
    if count > layout.num_tokens:
        raise FormatError(f"{count} exact tokens in a chunk of {layout.num_tokens}")
    token_bytes = layout.num_elements // layout.num_tokens * layout.dtype.item_bytes
    if len(body) != _U32.size * (1 + count) + count * token_bytes:
        raise FormatError(f"{len(body)} bytes for {count} exact tokens of {token_bytes}")
    indices = np.frombuffer(body, "<u4", count, _U32.size).astype(np.int64)
    if count and (int(indices[-1]) >= layout.num_tokens or bool((np.diff(indices) <= 0).any())):
        raise FormatError(f"exact tokens {indices.tolist()[:8]} do not rise below {layout.num_tokens}")
    exact = np.zeros(layout.num_tokens, dtype=bool)
    exact[indices] = True
    shape = layout.shape
    elements = torch.empty((shape.num_layers, 2, count, shape.num_kv_heads, shape.head_dim), dtype=layout.dtype.torch)
    if count:
        raw = np.frombuffer(body, np.uint8, offset=_U32.size * (1 + count))
        elements.view(-1).view(torch.uint8).copy_(torch.from_numpy(raw.copy()))
    if not bool(torch.isfinite(elements).all()):
        raise FormatError("an exact token holds NaN or Inf")
    return exact, elements
