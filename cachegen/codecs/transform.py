"""The ``transform`` codec: keys un-rotated, decorrelated across heads and layers, uniformly quantized, entropy-coded.

Energy gathers in few coefficients, most of which are zero at every level but the finest. The profile brings all that
describes the model; a chunk holds symbols alone, and the tokens that are stored as they are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch

from cachegen.codecs.base import CodecTables, check_section_ids, destination
from cachegen.codecs.coefficient_streams import CodedUnit, read_coefficients, write_coefficients
from cachegen.codecs.equal_harm import Backward, forward, project, representable, take_off_prediction
from cachegen.codecs.exact_tokens import read_exact, write_exact
from cachegen.codecs.token_steps import TokenSteps, choose_offsets, read_offsets, write_offsets
from cachegen.codecs.transform_tables import TransformTables
from cachegen.errors import FormatError, UnsupportedModelError
from cachegen.kernels import get_backend
from cachegen.kernels.base import Backend
from cachegen.kernels.products import TOKEN_MULTIPLE, multiple
from cachegen.kernels.uniform import GRID_STEPS
from cachegen.kv import ChunkLayout

SECTION_EXACT_TOKENS = 8
SECTION_COEFFICIENTS = 9
SECTION_TOKEN_STEPS = 14
SECTION_CODEBOOK_ENTRIES = 15
# Attention sinks: later tokens look at the first ones far more than at any others.
SINK_TOKENS = 4
# Of the output's memory, what the exact tokens take, and then a unit's symbols with its streams at work or with the
# tokens that are restored at once. What is left of DECODE_MEMORY is the allocator's.
MEMORY = 0.6


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
        every_token = TokenSteps(level, offsets)
        # a rank is largest at the finest step
        finest = every_token.groups[0][0]
        with _float32_products(kv.device):
            x = forward(kv, transform, positions)
            entries = take_off_prediction(x, transform)
            coefficients = [project(x, transform, unit, finest) for unit in transform.units]
        exact = positions < SINK_TOKENS
        for unit, y in zip(transform.units, coefficients, strict=True):
            channels = unit.of(x)
            for place, group in every_token.groups:
                tokens = every_token.order[group]
                part = y[: transform.ranks[place, unit.index], tokens]
                exact[tokens] |= ~representable(channels[tokens], part, GRID_STEPS[place])
        sections = {SECTION_EXACT_TOKENS: write_exact(kv, exact)}
        coded = np.flatnonzero(~exact)
        if len(coded):
            token_steps = TokenSteps(level, offsets[coded])
            sections[SECTION_TOKEN_STEPS] = write_offsets(token_steps.offsets)
            if transform.codebook is not None and entries is not None:
                sections[SECTION_CODEBOOK_ENTRIES] = transform.codebook.write_entries(entries)
            sections[SECTION_COEFFICIENTS] = write_coefficients(
                coefficients, transform, token_steps, coded[token_steps.order], self._backend
            )
        return sections

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
            token_steps = TokenSteps(level, read_offsets(sections[SECTION_TOKEN_STEPS], len(coded)))
        entries = None
        if transform.codebook is not None:
            with self._errors_in(SECTION_CODEBOOK_ENTRIES):
                entries = transform.codebook.read_entries(sections[SECTION_CODEBOOK_ENTRIES], layout.num_tokens)
        with self._errors_in(SECTION_COEFFICIENTS):
            units = read_coefficients(sections[SECTION_COEFFICIENTS], transform, token_steps)
            # nothing as large as the header claims before its streams are known to be long enough for it
            kv = destination(layout, self._backend.device, out)
            backward = Backward(
                transform, first_token, coded[token_steps.order], token_steps.steps, entries, self._backend
            )
            self._restore(units, transform, backward, token_steps, kv, int(kv.nbytes * MEMORY) - elements.nbytes)
        kv[:, :, torch.from_numpy(np.flatnonzero(exact)).to(kv.device)] = elements.to(kv.device)
        return kv

    def _restore(
        self,
        units: list[CodedUnit],
        transform: TransformTables,
        backward: Backward,
        token_steps: TokenSteps,
        kv: torch.Tensor,
        memory: int,
    ) -> None:
        """Fill in the coded tokens of a chunk tensor, unit by unit and some tokens at a time."""
        for unit, streams in zip(transform.units, units, strict=True):
            symbols = streams.decode(len(token_steps.offsets), self._backend, memory)
            most = (
                max(1, (memory - symbols.nbytes) // backward.token_bytes(unit, len(symbols)) // TOKEN_MULTIPLE)
                * TOKEN_MULTIPLE
            )
            # parts of one size; what a token's own step does not code is zero
            count = len(token_steps.offsets)
            size = multiple(math.ceil(count / math.ceil(count / most)), TOKEN_MULTIPLE)
            for first in range(0, count, size):
                tokens = slice(first, min(first + size, count))
                with _float32_products(kv.device):
                    backward.restore(symbols[:, tokens], unit, tokens, kv)

    @contextmanager
    def _errors_in(self, section_id: int) -> Iterator[None]:
        try:
            yield
        except FormatError as error:
            raise FormatError(f"codec {self.name}: section {section_id}: {error}") from error


def _sections_of(transform: TransformTables) -> tuple[int, ...]:
    """Sections of a chunk that has coded tokens."""
    entries = () if transform.codebook is None else (SECTION_CODEBOOK_ENTRIES,)
    return (SECTION_EXACT_TOKENS, SECTION_TOKEN_STEPS, *entries, SECTION_COEFFICIENTS)


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
