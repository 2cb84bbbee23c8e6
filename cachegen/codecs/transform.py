"""The ``transform`` codec: keys un-rotated, decorrelated across heads and layers, uniformly quantized, entropy-coded.

Energy gathers in few coefficients, most of which are zero at every level but the finest. The profile brings all that
describes the model; a chunk holds symbols alone, and the tokens that are stored as they are.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch

from cachegen.codecs.base import DECODE_MEMORY, CodecTables, check_section_ids
from cachegen.codecs.equal_harm import Backward, forward, project, representable
from cachegen.codecs.exact_tokens import Mask, read_exact, write_exact
from cachegen.codecs.streams import read_streams, write_streams
from cachegen.codecs.transform_tables import STREAM_COEFFICIENTS, TransformTables
from cachegen.errors import FormatError, UnsupportedModelError
from cachegen.kernels import get_backend
from cachegen.kernels.base import Backend, CodedStreams
from cachegen.kernels.cast import store
from cachegen.kernels.products import product_dtype
from cachegen.kernels.tables import FrequencyTables
from cachegen.kernels.uniform import LEVEL_STEPS, SYMBOL_LARGEST
from cachegen.kv import ChunkLayout

SECTION_EXACT_TOKENS = 8
SECTION_COEFFICIENTS = 9
# Attention sinks: later tokens look at the first ones far more than at any others.
SINK_TOKENS = 4
# Channels that are restored at a time.
BLOCK_CHANNELS = 768
# Of one symbol while its stream is decoded: as an integer, then as a number.
_DECODE_BYTES = 4 + 4
# Of one element of a block: as product, without the metric, and turned.
_BLOCK_BYTES = 3 * 4
_U32 = struct.Struct("<I")


class TransformCodec:
    """The codec of this project.

    Parameters
    ----------
    backend : str
        Name of the backend that runs the integer stages; all give the same bytes.
    """

    name = "transform"
    section_names: ClassVar[Mapping[int, str]] = {
        SECTION_EXACT_TOKENS: "exact tokens",
        SECTION_COEFFICIENTS: "coefficient streams",
    }
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
            coded = np.flatnonzero(~exact)
            check_sinks(first_token + coded)
        except FormatError as error:
            raise FormatError(f"codec {self.name}: section {SECTION_EXACT_TOKENS}: {error}") from error
        ids = (SECTION_EXACT_TOKENS, SECTION_COEFFICIENTS) if len(coded) else (SECTION_EXACT_TOKENS,)
        check_section_ids(self.name, sections, ids)
        kv = torch.empty(layout.tensor_shape, dtype=layout.dtype.torch)
        if len(coded):
            try:
                self._decode_streams(sections[SECTION_COEFFICIENTS], transform, level, first_token, coded, kv)
            except FormatError as error:
                raise FormatError(f"codec {self.name}: section {SECTION_COEFFICIENTS}: {error}") from error
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

    def _decode_streams(
        self,
        body: memoryview,
        transform: TransformTables,
        level: int,
        first_token: int,
        coded: npt.NDArray[np.int64],
        kv: torch.Tensor,
    ) -> None:
        """Fill in the coded tokens of a chunk tensor, unit by unit."""
        units = self._parse_streams(body, transform, level, len(coded))
        backward = Backward(transform, first_token, coded)
        memory = int(kv.numel() * kv.element_size() * DECODE_MEMORY)
        dim = transform.shape.head_dim
        # as many heads at a time as make a product that is worth its start
        block = max(1, BLOCK_CHANNELS // dim) * dim
        for unit, streams in zip(transform.units, units, strict=True):
            symbols = self._decode_unit(streams, len(coded), memory)
            basis = transform.product_bases[unit.index][: len(symbols)]
            for first in range(0, unit.channels, block):
                x = symbols.T @ basis[:, first : first + block]
                head = (unit.first_channel + first) // dim
                backward.restore(x.float(), int(unit.is_value), head, LEVEL_STEPS[level], kv)

    def _decode_unit(
        self, streams: list[tuple[CodedStreams, FrequencyTables]], num_tokens: int, memory: int
    ) -> torch.Tensor:
        """Symbols ``(rank, tokens)`` of a unit, in the type that the product wants."""
        ends = np.cumsum([tables.channels for _, tables in streams])
        symbols = torch.empty(int(ends[-1]), num_tokens, dtype=product_dtype())

        def decode(which: slice) -> None:
            for (coded, tables), end in zip(streams[which], ends[which], strict=True):
                part = self._backend.decode_streams(coded, num_tokens, tables, slice(0, 1))
                store(part.astype(np.float32), symbols[None, end - tables.channels : end])

        stream_bytes = STREAM_COEFFICIENTS * num_tokens * _DECODE_BYTES
        block_bytes = BLOCK_CHANNELS * num_tokens * _BLOCK_BYTES
        left = memory - symbols.numel() * symbols.element_size() - block_bytes
        self._backend.each(decode, len(streams), stream_bytes, left)
        return symbols

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


def check_sinks(coded_positions: npt.NDArray[np.int64]) -> None:
    """Refuse a chunk that codes tokens which every encoder leaves exact."""
    if len(coded_positions) and 0 <= int(coded_positions[0]) < SINK_TOKENS:
        raise FormatError(f"token {int(coded_positions[0])} of the context is not exact")


def transform_of(tables: CodecTables | None) -> TransformTables:
    """Parameters of the codec; UnsupportedModelError says why a model has none."""
    assert tables is not None
    if isinstance(tables.transform, str):
        raise UnsupportedModelError(f"transform: {tables.transform}")
    return tables.transform
