"""The ``transform`` codec: keys un-rotated, decorrelated across heads and layers, uniformly quantized, entropy-coded.

Energy gathers in few coefficients, most of which are zero at every level but the finest. The profile brings all that
describes the model; a chunk holds symbols alone, and the tokens that are stored as they are.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from cachegen.codecs.base import DECODE_MEMORY, CodecTables, check_section_ids
from cachegen.codecs.equal_harm import Backward, forward, project, representable
from cachegen.codecs.exact_tokens import read_exact, write_exact
from cachegen.codecs.streams import read_streams, write_streams
from cachegen.codecs.token_steps import TokenSteps, choose_offsets, read_offsets, write_offsets
from cachegen.codecs.transform_tables import STREAM_COEFFICIENTS, Span, TransformTables, Unit
from cachegen.errors import FormatError, UnsupportedModelError
from cachegen.kernels import get_backend
from cachegen.kernels.base import Backend, CodedStreams
from cachegen.kernels.cast import store
from cachegen.kernels.products import product_dtype
from cachegen.kernels.uniform import GRID_STEPS, LEVEL_PLACES, SYMBOL_LARGEST
from cachegen.kernels.workers import map_in_threads
from cachegen.kv import ChunkLayout

SECTION_EXACT_TOKENS = 8
SECTION_COEFFICIENTS = 9
SECTION_TOKEN_STEPS = 10
_SECTIONS = (SECTION_EXACT_TOKENS, SECTION_TOKEN_STEPS, SECTION_COEFFICIENTS)
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
        offsets = choose_offsets(x, transform)
        # a rank is largest at the finest step
        finest = LEVEL_PLACES[level] + int(offsets.min())
        coefficients = [project(x[int(unit.is_value)], transform, unit, finest) for unit in transform.units]
        exact = positions < SINK_TOKENS
        for unit, y in zip(transform.units, coefficients, strict=True):
            for place in np.unique(LEVEL_PLACES[level] + offsets):
                tokens = np.flatnonzero(LEVEL_PLACES[level] + offsets == place)
                part = y[: transform.ranks[place, unit.index], tokens]
                exact[tokens] |= ~representable(x[int(unit.is_value)][tokens], unit, part, GRID_STEPS[place])
        sections = {SECTION_EXACT_TOKENS: write_exact(kv, exact)}
        coded = np.flatnonzero(~exact)
        if len(coded):
            token_steps = TokenSteps(level, offsets[coded])
            sections[SECTION_TOKEN_STEPS] = write_offsets(token_steps.offsets)
            order = coded[token_steps.order]
            sections[SECTION_COEFFICIENTS] = self._write_streams(coefficients, transform, token_steps, order)
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
            check_section_ids(self.name, sections, _SECTIONS)
        with self._errors_in(SECTION_EXACT_TOKENS):
            exact, elements = read_exact(sections[SECTION_EXACT_TOKENS], layout)
            coded = np.flatnonzero(~exact)
            check_sinks(first_token + coded)
        check_section_ids(self.name, sections, _SECTIONS if len(coded) else _SECTIONS[:1])
        kv = torch.empty(layout.tensor_shape, dtype=layout.dtype.torch)
        if len(coded):
            with self._errors_in(SECTION_TOKEN_STEPS):
                token_steps = TokenSteps(level, read_offsets(sections[SECTION_TOKEN_STEPS], len(coded)))
            with self._errors_in(SECTION_COEFFICIENTS):
                order = coded[token_steps.order]
                backward = Backward(transform, first_token, order, token_steps.steps)
                self._decode_streams(sections[SECTION_COEFFICIENTS], transform, token_steps, backward, kv)
        kv[:, :, torch.from_numpy(np.flatnonzero(exact))] = elements
        return kv

    @contextmanager
    def _errors_in(self, section_id: int) -> Iterator[None]:
        try:
            yield
        except FormatError as error:
            raise FormatError(f"codec {self.name}: section {section_id}: {error}") from error

    def _write_streams(
        self,
        coefficients: list[torch.Tensor],
        transform: TransformTables,
        token_steps: TokenSteps,
        order: npt.NDArray[np.int64],
    ) -> bytes:
        def write(stream: tuple[Unit, int, slice, Span]) -> bytes:
            unit, place, tokens, span = stream
            y = coefficients[unit.index].numpy()[span.first : span.end, order[tokens]]
            symbols = self._backend.quantize_uniform(y, GRID_STEPS[place])
            body = write_streams(self._backend.encode_streams(symbols[None], span.tables))
            return _U32.pack(len(body)) + body

        streams = [stream for unit in transform.units for stream in streams_of(unit, transform, token_steps)]
        return b"".join(map_in_threads(write, streams))

    def _decode_streams(
        self,
        body: memoryview,
        transform: TransformTables,
        token_steps: TokenSteps,
        backward: Backward,
        kv: torch.Tensor,
    ) -> None:
        """Fill in the coded tokens of a chunk tensor, unit by unit."""
        units = self._parse_streams(body, transform, token_steps)
        memory = int(kv.numel() * kv.element_size() * DECODE_MEMORY)
        dim = transform.shape.head_dim
        # as many heads at a time as make a product that is worth its start
        block = max(1, BLOCK_CHANNELS // dim) * dim
        for unit, streams in zip(transform.units, units, strict=True):
            symbols = self._decode_unit(streams, len(token_steps.offsets), memory)
            basis = transform.product_bases[unit.index][: len(symbols)]
            for first in range(0, unit.channels, block):
                x = symbols.T @ basis[:, first : first + block]
                backward.restore(x.float(), int(unit.is_value), (unit.first_channel + first) // dim, kv)

    def _decode_unit(self, streams: list[_CodedSpan], num_tokens: int, memory: int) -> torch.Tensor:
        """Symbols ``(rank, tokens in the order of their steps)`` of a unit, in the type that the product wants."""
        symbols = torch.zeros(max(stream.span.end for stream in streams), num_tokens, dtype=product_dtype())

        def decode(which: slice) -> None:
            for stream in streams[which]:
                count = stream.tokens.stop - stream.tokens.start
                part = self._backend.decode_streams(stream.coded, count, stream.span.tables, slice(0, 1))
                store(part.astype(np.float32), symbols[None, stream.span.first : stream.span.end, stream.tokens])

        # no stream has more symbols than that
        stream_bytes = STREAM_COEFFICIENTS * max(STREAM_COEFFICIENTS, num_tokens) * _DECODE_BYTES
        block_bytes = BLOCK_CHANNELS * num_tokens * _BLOCK_BYTES
        left = memory - symbols.numel() * symbols.element_size() - block_bytes
        self._backend.each(decode, len(streams), stream_bytes, left)
        return symbols

    def _parse_streams(
        self, body: memoryview, transform: TransformTables, token_steps: TokenSteps
    ) -> list[list[_CodedSpan]]:
        """The streams of each unit, every length checked before anything is decoded."""
        units: list[list[_CodedSpan]] = [[] for _ in transform.units]
        at = 0
        for unit in transform.units:
            for _, _, tokens, span in streams_of(unit, transform, token_steps):
                if at + _U32.size > len(body) or (size := _U32.unpack_from(body, at)[0]) > len(body) - at - _U32.size:
                    raise FormatError(f"{len(body)} bytes end in the middle of a stream of unit {unit.index}")
                at += _U32.size
                count = tokens.stop - tokens.start
                coded = read_streams(body[at : at + size], count, span.tables, SYMBOL_LARGEST)
                units[unit.index].append(_CodedSpan(tokens, span, coded))
                at += size
        if at != len(body):
            raise FormatError(f"{len(body)} bytes, its streams end at {at}")
        return units


@dataclass(frozen=True)
class _CodedSpan:
    """A stream as read: the tokens, in the order of their steps, and the coefficients that it holds."""

    tokens: slice
    span: Span
    coded: CodedStreams


def streams_of(
    unit: Unit, transform: TransformTables, token_steps: TokenSteps
) -> Iterator[tuple[Unit, int, slice, Span]]:
    """Each stream of a unit in order: place of its step in the grid, tokens, coefficients."""
    for place, tokens in token_steps.groups:
        for span in transform.spans(unit, place, tokens.stop - tokens.start):
            yield unit, place, tokens, span


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
