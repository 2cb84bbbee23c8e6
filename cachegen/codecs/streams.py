"""The bytes of a section of rANS streams: directory, lane states, words, escapes (docs/format.md)."""

from __future__ import annotations

import struct

import numpy as np
import numpy.typing as npt

from cachegen.errors import FormatError
from cachegen.kernels.base import MAX_LANES, STATE_LOW, CodedStreams, num_lanes
from cachegen.kernels.tables import STATE_SLACK_BITS, FrequencyTables

# lanes, bytes of escapes
_HEAD = struct.Struct("<II")
_DIRECTORY_BYTES = 8
_STATE_BYTES = 4
_WORD_BYTES = 2
_MAX_VARINT_BYTES = 5
# Varints are unpacked so many bytes at a time: beside the values they take 60 times as much.
_UNPACKED_BYTES = 1 << 14

I64 = npt.NDArray[np.int64]
U8 = npt.NDArray[np.uint8]


def fixed_bytes(num_symbols: int) -> int:
    """Bytes of a section of one row, of so many symbols, before its first word."""
    return _HEAD.size + _DIRECTORY_BYTES + _STATE_BYTES * num_lanes(num_symbols)


def write_streams(coded: CodedStreams) -> bytes:
    """Bytes of the section."""
    escapes = pack_varints(coded.escapes)
    directory = np.stack((coded.num_words, coded.num_escapes), axis=1)
    return b"".join(
        (
            _HEAD.pack(coded.states.shape[1], len(escapes)),
            directory.astype("<u4").tobytes(),
            coded.states.astype("<u4").tobytes(),
            coded.words.astype("<u2").tobytes(),
            escapes,
        )
    )


def read_streams(body: memoryview, num_tokens: int, tables: FrequencyTables, largest: int) -> CodedStreams:
    """Streams of a section whose every length has been checked before anything was allocated for it.

    Parameters
    ----------
    body : memoryview
        The section.
    num_tokens : int
        Symbols of each channel.
    tables : FrequencyTables
        The tables that the streams were coded with; they say how few bits a stream can have.
    largest : int
        Largest magnitude of an escaped value.

    Raises
    ------
    FormatError
        A length, lane count, state or escape that no encoder writes.
    """
    lanes, escape_bytes = _read_head(body, tables.rows)
    directory = np.frombuffer(body, "<u4", 2 * tables.rows, _HEAD.size).reshape(-1, 2).astype(np.int64)
    num_words, num_escapes = np.ascontiguousarray(directory[:, 0]), np.ascontiguousarray(directory[:, 1])
    _check_counts(num_words, num_escapes, lanes, num_tokens, tables)
    states_at = _HEAD.size + tables.rows * _DIRECTORY_BYTES
    words_at = states_at + tables.rows * lanes * _STATE_BYTES
    total_words = int(num_words.sum())
    escapes_at = words_at + total_words * _WORD_BYTES
    if escapes_at + escape_bytes != len(body):
        raise FormatError(f"{len(body)} bytes, its directory implies {escapes_at + escape_bytes}")
    states = np.frombuffer(body, "<u4", tables.rows * lanes, states_at).astype(np.uint32)
    if int(states.min()) < STATE_LOW:
        raise FormatError(f"lane state {int(states.argmin())} is {int(states.min())}, below {STATE_LOW}")
    words = np.frombuffer(body, "<u2", total_words, words_at).astype(np.uint16)
    escapes = unpack_varints(body[escapes_at:], int(num_escapes.sum()), largest)
    return CodedStreams(states.reshape(tables.rows, lanes), num_words, words, num_escapes, escapes)


def _read_head(body: memoryview, rows: int) -> tuple[int, int]:
    if len(body) < _HEAD.size + rows * _DIRECTORY_BYTES:
        raise FormatError(f"{len(body)} bytes, too few for the directory of {rows} streams")
    lanes, escape_bytes = _HEAD.unpack_from(body)
    if not 1 <= lanes <= MAX_LANES or lanes & (lanes - 1):
        raise FormatError(f"{lanes} lanes, must be a power of two in 1..{MAX_LANES}")
    return lanes, escape_bytes


def _check_counts(num_words: I64, num_escapes: I64, lanes: int, num_tokens: int, tables: FrequencyTables) -> None:
    num_symbols = tables.channels * num_tokens
    for name, counts in (("words", num_words), ("escapes", num_escapes)):
        row = int(counts.argmax())
        if counts[row] > num_symbols:
            raise FormatError(f"stream {row} has {counts[row]} {name} for {num_symbols} symbols")
    # what the states hold at most beyond their start, and the words; see STATE_SLACK_BITS
    most_bits = num_words * (16 + STATE_SLACK_BITS) + 16.0 * lanes
    short = most_bits < tables.least_bits * num_tokens
    if short.any():
        row = int(short.argmax())
        raise FormatError(f"stream {row} has {num_words[row]} words, too few for {num_symbols} symbols")


def varint_bytes(values: npt.NDArray[np.integer]) -> I64:
    """Length of each value as a zigzag base-128 varint."""
    limits = np.array([1 << 7 * size for size in range(1, _MAX_VARINT_BYTES)], dtype=np.uint64)
    return 1 + np.searchsorted(limits, _zigzag(values), side="right")


def pack_varints(values: npt.NDArray[np.int32]) -> bytes:
    """Zigzag base-128 varints: 7 bits a byte, low first, the high bit set on all bytes but the last."""
    zigzag, lengths = _zigzag(values), varint_bytes(values)
    packed = np.empty(int(lengths.sum()), dtype=np.uint8)
    starts = np.cumsum(lengths) - lengths
    for i in range(_MAX_VARINT_BYTES):
        has = lengths > i
        more = np.where(lengths[has] > i + 1, 0x80, 0).astype(np.uint64)
        packed[starts[has] + i] = (zigzag[has] >> np.uint64(7 * i) & np.uint64(0x7F)) | more
    return packed.tobytes()


def unpack_varints(body: memoryview, count: int, largest: int) -> npt.NDArray[np.int32]:
    """Inverse of ``pack_varints``.

    Raises
    ------
    FormatError
        Not ``count`` varints of the shortest form, or a magnitude above ``largest``.
    """
    packed = np.frombuffer(body, dtype=np.uint8)
    if count > len(packed) or (count == 0) != (len(packed) == 0):
        raise FormatError(f"{len(packed)} bytes of escapes are not {count} varints")
    values = np.empty(count, dtype=np.int32)
    done = at = 0
    while at < len(packed):
        part = packed[at : at + _UNPACKED_BYTES]
        ends = np.flatnonzero(part < 0x80)
        if len(ends) == 0 or done + len(ends) > count:
            raise FormatError(f"{len(packed)} bytes of escapes are not {count} varints")
        values[done : done + len(ends)] = _unpack_varints(part, ends, done, largest)
        done += len(ends)
        at += int(ends[-1]) + 1
    if done != count:
        raise FormatError(f"{len(packed)} bytes of escapes are not {count} varints")
    return values


def _unpack_varints(packed: U8, ends: I64, first: int, largest: int) -> I64:
    """Values that end at ``ends``; the first of them is escape ``first`` of its section."""
    starts = np.append(0, ends[:-1] + 1)
    lengths = ends - starts + 1
    if int(lengths.max()) > _MAX_VARINT_BYTES or bool((packed[ends][lengths > 1] == 0).any()):
        raise FormatError(f"an escape is longer than {_MAX_VARINT_BYTES} bytes or than it need be")
    zigzag = np.zeros(len(ends), dtype=np.uint64)
    for i in range(_MAX_VARINT_BYTES):
        has = lengths > i
        zigzag[has] |= (packed[starts[has] + i].astype(np.uint64) & np.uint64(0x7F)) << np.uint64(7 * i)
    values: I64 = (zigzag >> np.uint64(1)).astype(np.int64) ^ -(zigzag & np.uint64(1)).astype(np.int64)
    outside = np.abs(values) > largest
    if outside.any():
        raise FormatError(f"escape {first + int(outside.argmax())} is {values[outside][0]}, outside +-{largest}")
    return values


def _zigzag(values: npt.NDArray[np.integer]) -> npt.NDArray[np.uint64]:
    wide = values.astype(np.int64)
    return ((wide << 1) ^ (wide >> 63)).astype(np.uint64)
