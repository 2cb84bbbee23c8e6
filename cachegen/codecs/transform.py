"""The ``transform`` codec: keys un-rotated, decorrelated across heads and layers, uniformly quantized, entropy-coded.

What a token's identity says is taken off before, and what earlier tokens of the chunk say of its symbols behind.
Energy gathers in few coefficients, most of which are zero at every level but the finest. The profile brings all that
describes the model; a chunk holds symbols alone, and the tokens that are stored as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch

from cachegen.codecs.base import CodecTables, check_section_ids, destination
from cachegen.codecs.coefficient_streams import (
    CodedUnit,
    quantize_coefficients,
    read_coefficients,
    write_coefficients,
)
from cachegen.codecs.equal_harm import Backward, forward, project, representable, take_off_prediction
from cachegen.codecs.exact_tokens import read_exact, write_exact
from cachegen.codecs.reference_search import choose_references
from cachegen.codecs.token_groups import I64, Places
from cachegen.codecs.token_parts import TokenPart, parts_of
from cachegen.codecs.token_references import join_references, no_references, read_references, write_references
from cachegen.codecs.token_steps import (
    choose_offsets,
    give_sinks_their_own,
    places_of,
    read_offsets,
    too_fine_for_steps,
    write_offsets,
)
from cachegen.codecs.transform_tables import TransformTables
from cachegen.errors import FormatError, UnsupportedModelError
from cachegen.kernels import get_backend
from cachegen.kernels.base import Backend
from cachegen.kernels.uniform import GRID_STEPS
from cachegen.kv import ChunkLayout

SECTION_EXACT_TOKENS = 8
SECTION_COEFFICIENTS = 9
SECTION_TOKEN_STEPS = 14
SECTION_CODEBOOK_ENTRIES = 15
SECTION_REFERENCES = 16
# Attention sinks: later tokens look at the first ones far more than at any others.
SINK_TOKENS = 4
# Of the output's memory, what the exact tokens take, and then a unit's symbols with its streams at work or with the
# tokens that are restored at once. What is left of DECODE_MEMORY is the allocator's and the matrix library's.
MEMORY = 0.85


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
        SECTION_TOKEN_STEPS: "steps of tokens",
        SECTION_CODEBOOK_ENTRIES: "codebook entries",
        SECTION_REFERENCES: "references of tokens",
        SECTION_COEFFICIENTS: "coefficient streams",
    }
    uses_tables = True

    def __init__(self, backend: str) -> None:
        self._backend_name = backend

    @property
    def _backend(self) -> Backend:
        return get_backend(self._backend_name)

    def encode(
        self,
        kv: torch.Tensor,
        level: int | None,
        tables: CodecTables | None,
        first_token: int,
        tokens_behind: int | None = None,
    ) -> dict[int, bytes]:
        """See ``Codec``."""
        assert level is not None
        transform = transform_of(tables)
        positions = first_token + np.arange(kv.shape[2])
        transform.rotary.check_span(first_token + kv.shape[2])
        offsets = choose_offsets(kv.shape[2], tokens_behind)
        exact = positions < SINK_TOKENS
        if transform.table_reach:
            # the metric of earlier profiles counts sinks in
            give_sinks_their_own(offsets, kv[:, 1])
            exact |= too_fine_for_steps(level, offsets)
        places = places_of(level, offsets)
        parts = parts_of(level, places)
        with _float32_products(kv.device):
            x = forward(kv, transform, positions)
            entries = take_off_prediction(x, transform)
            coefficients = [
                [project(x, transform, unit, tokens, places[tokens]) for unit in transform.units] for tokens in parts
            ]
        for tokens, of_units in zip(parts, coefficients, strict=True):
            exact[tokens] |= ~_representable(x, transform, tokens, places[tokens], of_units)
        sections = {SECTION_EXACT_TOKENS: write_exact(kv, exact)}
        coded = np.flatnonzero(~exact)
        if not len(coded):
            return sections
        sections[SECTION_TOKEN_STEPS] = write_offsets(offsets[coded])
        if transform.codebook is not None and entries is not None:
            sections[SECTION_CODEBOOK_ENTRIES] = transform.codebook.write_entries(entries)
        references, streams = [], []
        for tokens, of_units in zip(parts, coefficients, strict=True):
            own = ~exact[tokens]
            if own.any():
                described = [y[:, torch.from_numpy(own)] for y in of_units]
                numbers = np.searchsorted(coded, tokens[own])
                part, body = self._encode_part(described, transform, numbers, places[tokens[own]])
                references.append((part.tokens, part.references))
                streams.append(body)
        if transform.table_reach:
            sections[SECTION_REFERENCES] = write_references(join_references(references), kv.shape[2])
        sections[SECTION_COEFFICIENTS] = b"".join(streams)
        return sections

    def _encode_part(
        self, coefficients: Sequence[torch.Tensor], transform: TransformTables, tokens: I64, places: Places
    ) -> tuple[TokenPart, bytes]:
        """A part of the coded tokens, from the coefficients ``(rank, tokens)`` of each unit, and its streams."""
        symbols = [
            quantize_coefficients(y.numpy(), transform, unit, places, self._backend)
            for unit, y in zip(transform.units, coefficients, strict=True)
        ]
        references = no_references(len(symbols), len(tokens))
        if transform.table_reach:
            with _float32_products(coefficients[0].device):
                references = choose_references(symbols, transform, places)
        part = TokenPart(tokens, places, references)
        return part, write_coefficients(symbols, transform, part, self._backend)

    def decode(
        self,
        sections: Mapping[int, memoryview],
        layout: ChunkLayout,
        level: int | None,
        tables: CodecTables | None,
        first_token: int,
        out: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """See ``Codec``."""
        assert level is not None
        try:
            transform = transform_of(tables)
            transform.rotary.check_span(first_token + layout.num_tokens)
        except UnsupportedModelError as error:
            raise FormatError(f"codec {self.name}: its profile says that no such chunk was encoded: {error}") from error
        expected = _sections_of(transform)
        if SECTION_EXACT_TOKENS not in sections:
            check_section_ids(self.name, sections, expected)
        with self._errors_in(SECTION_EXACT_TOKENS):
            exact, elements = read_exact(sections[SECTION_EXACT_TOKENS], layout)
            coded = np.flatnonzero(~exact)
            check_sinks(first_token + coded)
        check_section_ids(self.name, sections, expected if len(coded) else expected[:1])
        if not len(coded):
            return elements
        with self._errors_in(SECTION_TOKEN_STEPS):
            offsets = read_offsets(sections[SECTION_TOKEN_STEPS], len(coded))
            places = places_of(level, offsets)
        entries, references = None, no_references(len(transform.units), len(coded))
        if transform.codebook is not None:
            with self._errors_in(SECTION_CODEBOOK_ENTRIES):
                entries = transform.codebook.read_entries(sections[SECTION_CODEBOOK_ENTRIES], layout.num_tokens)
        with self._errors_in(SECTION_REFERENCES):
            if transform.table_reach:
                references = read_references(
                    sections[SECTION_REFERENCES], layout.num_tokens, len(transform.units), places, len(GRID_STEPS)
                )
            parts = [TokenPart(tokens, places[tokens], references.of(tokens)) for tokens in parts_of(level, places)]
        with self._errors_in(SECTION_COEFFICIENTS):
            units_of_parts = read_coefficients(sections[SECTION_COEFFICIENTS], transform, parts)
            # nothing as large as the header claims before its streams are known to be long enough for it
            kv = destination(layout, self._backend.device, out)
            backward = Backward(transform, first_token, coded, places, entries, self._backend)
            memory = int(kv.nbytes * MEMORY) - elements.nbytes
            for part, streams in zip(parts, units_of_parts, strict=True):
                self._restore_part(part, streams, transform, backward, kv, memory)
        kv[:, :, torch.from_numpy(np.flatnonzero(exact)).to(kv.device)] = elements.to(kv.device)
        return kv

    def _restore_part(
        self,
        part: TokenPart,
        streams: Sequence[CodedUnit],
        transform: TransformTables,
        backward: Backward,
        kv: torch.Tensor,
        memory: int,
    ) -> None:
        """Fill in a part of the tokens unit by unit, and of each unit some tokens at a time."""
        num_tokens = len(part.tokens)
        for unit, of_unit in zip(transform.units, streams, strict=True):
            symbols = of_unit.decode(num_tokens, self._backend, memory)
            groups, ranks = part.groups[unit.index], transform.ranks[:, unit.index]
            self._backend.add_predictions(symbols, part.predictions(unit.index, groups.columns, ranks))
            tokens = torch.from_numpy(part.tokens[groups.order]).to(symbols.device)
            # what a token's own step does not code is zero
            of_tokens = ranks[part.places[groups.order]]
            size = backward.tokens_at_once(unit, memory - symbols.nbytes)
            for first in range(0, num_tokens, size):
                block = slice(first, first + size)
                with _float32_products(kv.device):
                    backward.restore(symbols[:, block], unit, tokens[block], of_tokens[block], kv)

    @contextmanager
    def _errors_in(self, section_id: int) -> Iterator[None]:
        try:
            yield
        except FormatError as error:
            raise FormatError(f"codec {self.name}: section {section_id}: {error}") from error


def _sections_of(transform: TransformTables) -> tuple[int, ...]:
    """Sections of a chunk that has coded tokens."""
    entries = () if transform.codebook is None else (SECTION_CODEBOOK_ENTRIES,)
    references = (SECTION_REFERENCES,) if transform.table_reach else ()
    return (SECTION_EXACT_TOKENS, SECTION_TOKEN_STEPS, *entries, *references, SECTION_COEFFICIENTS)


def _representable(
    x: tuple[torch.Tensor, torch.Tensor],
    transform: TransformTables,
    tokens: I64,
    places: Places,
    coefficients: Sequence[torch.Tensor],
) -> npt.NDArray[np.bool_]:
    """Which of some tokens of :func:`forward`'s their coefficients describe at their steps."""
    sound = np.ones(len(tokens), dtype=bool)
    for unit, y in zip(transform.units, coefficients, strict=True):
        channels = unit.of(x)
        for place in np.unique(places):
            own = np.flatnonzero(places == place)
            part = y[: transform.ranks[place, unit.index], own]
            sound[own] &= representable(channels[tokens[own]], part, GRID_STEPS[place])
    return sound


def _float32_products(device: torch.device) -> AbstractContextManager[None]:
    """Keep a caller's autocast out of the codec's products."""
    return torch.autocast(device.type, enabled=False)


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
