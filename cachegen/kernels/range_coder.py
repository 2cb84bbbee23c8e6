"""The range coder of the published CacheGen code, bit by bit in plain Python: the reference of its compiled twin.

A static arithmetic coder with 32-bit bounds and 16-bit tables: a bitstream for each (run of 256 tokens, row, channel),
most significant bit first, padded to whole bytes. The bitstreams are those of the published code (commit 6bed34c). Many
short streams, each with an end of its own, cost bytes; that is kept, since bytes are compared. What crashes or corrupts
there cannot happen here: a stream has room for its worst case, no shift is as wide as its operand, and a stream that
does not end exactly where its symbols do is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from cachegen.errors import FormatError

RUN_TOKENS = 256
PRECISION_BITS = 16
FULL = 0xFFFF_FFFF
HALF = 0x8000_0000
QUARTER = 0x4000_0000

U8 = npt.NDArray[np.uint8]
# (channels, entries): entry i is where symbol i starts; the last one is 0xFFFF and stands for 0x10000.
Cdfs = npt.NDArray[np.uint16]


@dataclass(frozen=True)
class CodedRow:
    """Bitstreams of a row back to back, by run, then channel; ``lengths (runs, channels)`` in bytes."""

    lengths: npt.NDArray[np.int32]
    data: U8


class RangeCoder(Protocol):
    """A module that codes rows: this one, or a twin that gives the same bits."""

    def encode_row(self, symbols: U8, cdfs: Cdfs) -> CodedRow:
        """Bitstreams of ``symbols (channels, tokens)``, each below the entries of its table less one."""
        ...

    def decode_row(self, coded: CodedRow, num_tokens: int, cdfs: Cdfs) -> U8:
        """Symbols ``(channels, tokens)``; FormatError names the first bitstream that is not its symbols' own."""
        ...


def num_runs(num_tokens: int) -> int:
    """Runs of a chunk, the short tail included."""
    return -(-num_tokens // RUN_TOKENS)


def run_spans(num_tokens: int) -> list[tuple[int, int]]:
    """First and end token of each run."""
    return [(first, min(first + RUN_TOKENS, num_tokens)) for first in range(0, num_tokens, RUN_TOKENS)]


def most_bytes(run_tokens: int) -> int:
    """Length that no bitstream of that many symbols exceeds.

    Coding a symbol of the least probability leaves ``floor(span / 2**16)`` of a span above 2**30, so it costs at most
    16.0001 bits: 256 symbols take 16 bits each at most, and two end the stream.
    """
    return 2 * run_tokens + 1


def encode_row(symbols: U8, cdfs: Cdfs) -> CodedRow:
    """Bitstreams of ``symbols (channels, tokens)``, each below the entries of its table less one."""
    channels, num_tokens = symbols.shape
    streams = [
        _encode(symbols[channel, first:end].tolist(), cdfs[channel].tolist())
        for first, end in run_spans(num_tokens)
        for channel in range(channels)
    ]
    lengths = np.array([len(stream) for stream in streams], dtype=np.int32).reshape(-1, channels)
    return CodedRow(lengths, np.frombuffer(bytearray(b"".join(streams)), dtype=np.uint8))


def decode_row(coded: CodedRow, num_tokens: int, cdfs: Cdfs) -> U8:
    """Symbols ``(channels, tokens)``; FormatError names the first bitstream that is not its symbols' own."""
    channels = len(cdfs)
    symbols = np.empty((channels, num_tokens), dtype=np.uint8)
    at = 0
    for run, (first, end) in enumerate(run_spans(num_tokens)):
        for channel in range(channels):
            stream = coded.data[at : at + coded.lengths[run, channel]].tobytes()
            decoded = _decode(stream, end - first, cdfs[channel].tolist())
            if decoded is None:
                raise unsound_stream(run, channel)
            symbols[channel, first:end] = decoded
            at += len(stream)
    return symbols


def unsound_stream(run: int, channel: int) -> FormatError:
    """The error of a bitstream that no encoder wrote."""
    return FormatError(f"bitstream of run {run}, channel {channel} does not end where its symbols do")


def _narrowed(low: int, high: int, symbol: int, cdf: list[int]) -> tuple[int, int]:
    """Bounds after a symbol."""
    span = high - low + 1
    top = 1 << PRECISION_BITS if symbol == len(cdf) - 2 else cdf[symbol + 1]
    return low + (span * cdf[symbol] >> PRECISION_BITS), low + (span * top >> PRECISION_BITS) - 1


def _is_narrow(low: int, high: int) -> bool:
    """Whether the next bit is certain, or the bounds lie around the middle so closely that it must be put off."""
    return high < HALF or low >= HALF or (low >= QUARTER and high < HALF + QUARTER)


def _encode(symbols: list[int], cdf: list[int]) -> bytes:
    low, high, pending = 0, FULL, 0
    bits: list[int] = []

    def put(bit: int) -> None:
        bits.extend((bit, *(1 - bit,) * pending))

    for symbol in symbols:
        low, high = _narrowed(low, high, symbol, cdf)
        while _is_narrow(low, high):
            if high < HALF or low >= HALF:
                put(low >> 31)
                pending = 0
                middle = 0
            else:
                pending += 1
                middle = HALF
            low, high = (low << 1 & FULL) ^ middle, (high << 1 & FULL | 1) ^ middle
    pending += 1
    put(0 if low < QUARTER else 1)
    return np.packbits(np.array(bits, dtype=np.uint8)).tobytes()


def _decode(stream: bytes, count: int, cdf: list[int]) -> list[int] | None:
    """Symbols of a bitstream; None where it is not exactly what they encode to."""
    # zeros behind the end, as many as the window over the bits can reach
    bits = np.unpackbits(np.frombuffer(stream + bytes(4 + most_bytes(count)), dtype=np.uint8)).tolist()
    value = int("".join(map(str, bits[:32])), 2)
    low, high, at = 0, FULL, 32
    symbols = []
    for _ in range(count):
        target = (((value - low + 1) << PRECISION_BITS) - 1) // (high - low + 1)
        symbol = sum(start <= target for start in cdf[1:-1])
        symbols.append(symbol)
        low, high = _narrowed(low, high, symbol, cdf)
        while _is_narrow(low, high):
            middle = 0 if high < HALF or low >= HALF else HALF
            low, high = (low << 1 & FULL) ^ middle, (high << 1 & FULL | 1) ^ middle
            value = (value << 1 & FULL | bits[at]) ^ middle
            at += 1
    # of the bits that ended the stream two are left in the window, then zeros up to the next byte
    ends_well = len(stream) == -(-(at - 32 + 2) // 8) and value == (QUARTER if low < QUARTER else HALF)
    return symbols if ends_well else None
