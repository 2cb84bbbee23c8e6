"""A chunk's coefficients: for each unit, group of tokens and span of coefficients one rANS stream (docs/format.md)."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
import torch

from cachegen.codecs.streams import read_streams, write_streams
from cachegen.codecs.token_groups import Places, TokenGroup, TokenGroups
from cachegen.codecs.token_parts import TokenPart
from cachegen.codecs.transform_tables import Span, TransformTables
from cachegen.codecs.units import Unit
from cachegen.errors import FormatError
from cachegen.kernels.base import Backend, CodedStreams, PlacedStream
from cachegen.kernels.prediction import take_off_predictions
from cachegen.kernels.uniform import GRID_STEPS, SYMBOL_LARGEST

_U32 = struct.Struct("<I")

F32 = npt.NDArray[np.float32]
Symbols = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Stream:
    """What one stream holds: coefficients of a unit, of tokens that are coded together."""

    unit: Unit
    group: TokenGroup
    span: Span

    @property
    def name(self) -> str:
        """What errors call it."""
        step, tables = GRID_STEPS[self.group.place], GRID_STEPS[self.group.table_place]
        by = "" if tables == step else f" by tables of {tables:.3g}"
        return f"unit {self.unit.index}, step {step:.3g}{by}, coefficients {self.span.first}..{self.span.end - 1}"


@dataclass(frozen=True)
class CodedUnit:
    """The streams of one unit, all of them sound in form, and the largest magnitude of their escapes."""

    streams: list[PlacedStream]
    largest: int

    @property
    def rank(self) -> int:
        """Coefficients of a token at most."""
        return max(stream.first + stream.tables.channels for stream in self.streams)

    @property
    def dtype(self) -> torch.dtype:
        """Narrowest type that holds all symbols."""
        return torch.int16 if self.largest <= torch.iinfo(torch.int16).max else torch.int32

    def decode(self, num_tokens: int, backend: Backend, memory: int) -> torch.Tensor:
        """Symbols ``(rank, num_tokens)`` on the backend's device, tokens in the order of their groups.

        With the result it takes ``memory`` bytes at most, unless one stream takes more.
        """
        symbols = torch.zeros((self.rank, num_tokens), dtype=self.dtype, device=backend.device)
        backend.decode_placed(self.streams, symbols, memory - symbols.nbytes)
        return symbols


def quantize_coefficients(y: F32, transform: TransformTables, unit: Unit, places: Places, backend: Backend) -> Symbols:
    """Symbols of a unit's coefficients ``(rank, coded tokens)``, 0 for those that a token's step does not code.

    ``places`` are those of the tokens' steps in the grid.
    """
    symbols = np.zeros(y.shape, dtype=np.int32)
    for place in np.unique(places):
        tokens, rank = np.flatnonzero(places == place), int(transform.ranks[place, unit.index])
        symbols[:rank, tokens] = backend.quantize_uniform(y[:rank, tokens], GRID_STEPS[place])
    return symbols


def write_coefficients(
    symbols: Sequence[Symbols], transform: TransformTables, part: TokenPart, backend: Backend
) -> bytes:
    """What the section has of a part of the tokens.

    Parameters
    ----------
    symbols : sequence of int32 arrays, ``(rank, tokens)``
        Of each unit, tokens as they stand in the chunk; what predicts them is taken off in place.
    part : TokenPart
    """
    groups, own = part.groups, np.arange(len(part.tokens))
    for unit, of_unit in zip(transform.units, symbols, strict=True):
        take_off_predictions(of_unit, part.predictions(unit.index, own, transform.ranks[:, unit.index]))
    streams = [
        stream
        for unit, of_unit in zip(transform.units, groups, strict=True)
        for stream in streams_of(unit, transform, of_unit)
    ]
    bodies = [b""] * len(streams)

    def write(which: slice) -> None:
        for i in range(*which.indices(len(streams))):
            stream = streams[i]
            unit, span = stream.unit.index, stream.span
            own_symbols = symbols[unit][span.first : span.end, groups[unit].order[stream.group.tokens]]
            bodies[i] = write_streams(backend.encode_streams(own_symbols[None], span.tables))

    # nothing bounds what encoding takes: all streams may be under way at once
    backend.each(write, len(streams), item_bytes=1, memory=len(streams))
    return b"".join(_U32.pack(len(body)) + body for body in bodies)


def read_coefficients(
    body: memoryview, transform: TransformTables, parts: Sequence[TokenPart]
) -> list[list[CodedUnit]]:
    """The streams of each part's units; FormatError says where the section cannot be what an encoder wrote."""
    found, at = [], 0
    for part in parts:
        units = []
        for unit, groups in zip(transform.units, part.groups, strict=True):
            coded, at = _read_unit(body, at, transform, unit, groups)
            units.append(coded)
        found.append(units)
    if at != len(body):
        raise FormatError(f"{len(body)} bytes, its streams end at {at}")
    return found


def _read_unit(
    body: memoryview, at: int, transform: TransformTables, unit: Unit, groups: TokenGroups
) -> tuple[CodedUnit, int]:
    """The unit whose streams begin there, and where they end."""
    streams, largest = [], 0
    for stream in streams_of(unit, transform, groups):
        if at + _U32.size > len(body) or (size := _U32.unpack_from(body, at)[0]) > len(body) - at - _U32.size:
            raise FormatError(f"{len(body)} bytes end in the middle of {stream.name}")
        at += _U32.size
        read = partial(_read_stream, body[at : at + size], stream)
        # checked here, and read again when it is decoded: all streams together can be larger than the output
        largest = max(largest, int(np.abs(read().escapes).max(initial=0)))
        streams.append(PlacedStream(read, stream.span.tables, stream.span.first, stream.group.tokens, stream.name))
        at += size
    return CodedUnit(streams, largest), at


def _read_stream(body: memoryview, stream: Stream) -> CodedStreams:
    try:
        return read_streams(body, stream.group.num_tokens, stream.span.tables, SYMBOL_LARGEST)
    except FormatError as error:
        raise FormatError(f"{stream.name}: {error}") from error


def streams_of(unit: Unit, transform: TransformTables, groups: TokenGroups) -> Iterator[Stream]:
    """Each stream of a unit in the order in which they are stored."""
    for group in groups.groups:
        for span in transform.spans(unit, group):
            yield Stream(unit, group, span)
