"""A chunk's coefficients: for each unit, step and span of coefficients one rANS stream (docs/format.md)."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from cachegen.codecs.streams import read_streams, write_streams
from cachegen.codecs.token_steps import TokenSteps
from cachegen.codecs.transform_tables import STREAM_COEFFICIENTS, Span, TransformTables, Unit
from cachegen.errors import FormatError
from cachegen.kernels.base import Backend, CodedStreams
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


@dataclass(frozen=True)
class CodedUnit:
    """The streams of one unit as read, every length of theirs checked."""

    streams: list[tuple[Stream, CodedStreams]]

    def decode(self, num_tokens: int, backend: Backend, memory: int) -> torch.Tensor:
        """Symbols ``(rank, num_tokens)``, tokens in the order of their steps.

        With the result it takes ``memory`` bytes at most, unless one stream takes more.
        """
        rank = max(stream.span.end for stream, _ in self.streams)
        largest = max(int(np.abs(coded.escapes).max(initial=0)) for _, coded in self.streams)
        dtype = np.int16 if largest <= np.iinfo(np.int16).max else np.int32
        symbols = np.zeros((rank, num_tokens), dtype=dtype)

        def decode(which: slice) -> None:
            for stream, coded in self.streams[which]:
                [part] = backend.decode_streams(coded, stream.num_tokens, stream.span.tables, slice(0, 1))
                symbols[stream.span.first : stream.span.end, stream.tokens] = part

        # no stream has more symbols than that
        stream_bytes = STREAM_COEFFICIENTS * max(STREAM_COEFFICIENTS, num_tokens) * np.dtype(np.int32).itemsize
        backend.each(decode, len(self.streams), stream_bytes, memory - symbols.nbytes)
        return torch.from_numpy(symbols)


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
        streams = []
        for stream in streams_of(unit, transform, token_steps):
            if at + _U32.size > len(body) or (size := _U32.unpack_from(body, at)[0]) > len(body) - at - _U32.size:
                raise FormatError(f"{len(body)} bytes end in the middle of a stream of unit {unit.index}")
            at += _U32.size
            coded = read_streams(body[at : at + size], stream.num_tokens, stream.span.tables, SYMBOL_LARGEST)
            streams.append((stream, coded))
            at += size
        units.append(CodedUnit(streams))
    if at != len(body):
        raise FormatError(f"{len(body)} bytes, its streams end at {at}")
    return units


def streams_of(unit: Unit, transform: TransformTables, token_steps: TokenSteps) -> Iterator[Stream]:
    """Each stream of a unit in the order in which they are stored."""
    for place, tokens in token_steps.groups:
        for span in transform.spans(unit, place, tokens.stop - tokens.start):
            yield Stream(unit, place, tokens, span)
