"""A chunk's coefficients: for each unit, step and span of coefficients one rANS stream (docs/format.md)."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
import torch

from cachegen.codecs.streams import read_streams, write_streams
from cachegen.codecs.token_steps import TokenSteps
from cachegen.codecs.transform_tables import Span, TransformTables
from cachegen.codecs.units import Unit
from cachegen.errors import FormatError
from cachegen.kernels.base import Backend, CodedStreams, PlacedStream
from cachegen.kernels.uniform import GRID_STEPS, SYMBOL_LARGEST

_U32 = struct.Struct("<I")


@dataclass(frozen=True)
class Stream:
    """What one stream holds: coefficients of a unit, of tokens that share a step."""

    unit: Unit
    place: int
    tokens: slice
    span: Span

    @property
    def num_tokens(self) -> int:
        """Symbols of each coefficient."""
        return int(self.tokens.stop - self.tokens.start)

    @property
    def name(self) -> str:
        """What errors call it."""
        step = GRID_STEPS[self.place]
        return f"unit {self.unit.index}, step {step:.3g}, coefficients {self.span.first}..{self.span.end - 1}"


@dataclass(frozen=True)
class CodedUnit:
    """The streams of one unit, all of them sound in form, and the largest magnitude of their escapes."""

    streams: list[PlacedStream]
    largest: int

    def decode(self, num_tokens: int, backend: Backend, memory: int) -> torch.Tensor:
        """Symbols ``(rank, num_tokens)`` on the backend's device, tokens in the order of their steps.

        With the result it takes ``memory`` bytes at most, unless one stream takes more.
        """
        rank = max(stream.first + stream.tables.channels for stream in self.streams)
        dtype = torch.int16 if self.largest <= torch.iinfo(torch.int16).max else torch.int32
        symbols = torch.zeros((rank, num_tokens), dtype=dtype, device=backend.device)
        backend.decode_placed(self.streams, symbols, memory - symbols.nbytes)
        return symbols


def write_coefficients(
    coefficients: list[torch.Tensor],
    transform: TransformTables,
    token_steps: TokenSteps,
    order: npt.NDArray[np.int64],
    backend: Backend,
) -> bytes:
    """The section.

    Parameters
    ----------
    coefficients : list of torch.Tensor
        ``(rank, tokens of the chunk)`` of each unit.
    order : int64 array
        The coded tokens in the order of their steps.
    """

    streams = [stream for unit in transform.units for stream in streams_of(unit, transform, token_steps)]
    bodies = [b""] * len(streams)

    def write(which: slice) -> None:
        for i in range(*which.indices(len(streams))):
            stream = streams[i]
            y = coefficients[stream.unit.index].numpy()[stream.span.first : stream.span.end, order[stream.tokens]]
            symbols = backend.quantize_uniform(y, GRID_STEPS[stream.place])
            bodies[i] = write_streams(backend.encode_streams(symbols[None], stream.span.tables))

    # nothing bounds what encoding takes: all streams may be under way at once
    backend.each(write, len(streams), item_bytes=1, memory=len(streams))
    return b"".join(_U32.pack(len(body)) + body for body in bodies)


def read_coefficients(body: memoryview, transform: TransformTables, token_steps: TokenSteps) -> list[CodedUnit]:
    """The streams of each unit; FormatError says where the section cannot be what an encoder wrote."""
    units, at = [], 0
    for unit in transform.units:
        streams, largest = [], 0
        for stream in streams_of(unit, transform, token_steps):
            if at + _U32.size > len(body) or (size := _U32.unpack_from(body, at)[0]) > len(body) - at - _U32.size:
                raise FormatError(f"{len(body)} bytes end in the middle of {stream.name}")
            at += _U32.size
            read = partial(_read_stream, body[at : at + size], stream)
            # checked here, and read again when it is decoded: all streams together can be larger than the output
            largest = max(largest, int(np.abs(read().escapes).max(initial=0)))
            streams.append(PlacedStream(read, stream.span.tables, stream.span.first, stream.tokens, stream.name))
            at += size
        units.append(CodedUnit(streams, largest))
    if at != len(body):
        raise FormatError(f"{len(body)} bytes, its streams end at {at}")
    return units


def _read_stream(body: memoryview, stream: Stream) -> CodedStreams:
    try:
        return read_streams(body, stream.num_tokens, stream.span.tables, SYMBOL_LARGEST)
    except FormatError as error:
        raise FormatError(f"{stream.name}: {error}") from error


def streams_of(unit: Unit, transform: TransformTables, token_steps: TokenSteps) -> Iterator[Stream]:
    """Each stream of a unit in the order in which they are stored."""
    for place, tokens in token_steps.groups:
        for span in transform.spans(unit, place, tokens.stop - tokens.start):
            yield Stream(unit, place, tokens, span)
