"""Interleaved rANS for CPUs: the Numba twin of ``cachegen.kernels.rans``, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from cachegen.kernels.base import STATE_LOW, CodedStreams, PlacedStream, Symbols, num_lanes
from cachegen.kernels.jit import kernel
from cachegen.kernels.stream_faults import ESCAPES, SOUND, STATES, WORDS, stream_error
from cachegen.kernels.tables import ALPHABET, ESCAPE, PROB_BITS, PROB_SUM, VALUE_OFFSET, FrequencyTables
from cachegen.kernels.workers import map_in_threads

Array = npt.NDArray[Any]
_LOW = np.uint32(STATE_LOW)
_SLOT_MASK = np.uint32(PROB_SUM - 1)
_STATE_SHIFT = np.uint32(PROB_BITS)
_FULL_SHIFT = np.uint32(32 - PROB_BITS)
_WORD_BITS = np.uint32(16)
# Symbols of one table for which it pays to write down whose each slot is; fewer are searched for.
_WORTH_SLOTS = 24
_NO_WORDS = np.zeros(1, dtype=np.uint16)


def encode_streams(symbols: Symbols, tables: FrequencyTables) -> CodedStreams:
    """See ``cachegen.kernels.rans.encode_streams``."""
    rows, channels, num_tokens = symbols.shape
    symbols = np.ascontiguousarray(symbols)
    states = np.full((rows, num_lanes(channels * num_tokens)), STATE_LOW, dtype=np.uint32)
    # a symbol emits at most one word and one escape; pages that are not written cost nothing
    words = np.empty((rows, channels * num_tokens), dtype=np.uint16)
    escapes = np.empty((rows, channels * num_tokens), dtype=np.int32)

    def encode_row(row: int) -> tuple[int, int]:
        return _encode_kernel(
            row, symbols, tables.first, tables.frequencies, tables.starts, states[row], words[row], escapes[row]
        )

    counts = np.array(map_in_threads(encode_row, range(rows)), dtype=np.int64)
    num_words, num_escapes = np.ascontiguousarray(counts.T)
    return CodedStreams(states, num_words, _ends(words, num_words), num_escapes, _ends(escapes, num_escapes))


def _ends(written: Array, counts: npt.NDArray[np.int64]) -> Array:
    """The last so many of each row, one row after the other."""
    return np.concatenate([row[len(row) - count :] for row, count in zip(written, counts, strict=True)])


def decode_streams(coded: CodedStreams, num_tokens: int, tables: FrequencyTables, rows: slice) -> Symbols:
    """See ``cachegen.kernels.rans.decode_streams``."""
    first, end, _ = rows.indices(len(coded.states))
    symbols = np.empty((end - first, tables.channels, num_tokens), dtype=np.int32)
    row, fault = _decode(coded, tables, first, end, num_tokens, num_tokens, symbols.reshape(-1))
    if fault != SOUND:
        raise stream_error(f"row {row}", fault)
    return symbols


def decode_placed(stream: PlacedStream, symbols: Array) -> None:
    """Put a stream's symbols in their places of ``symbols (coefficients, tokens)``, int16 or int32."""
    first_token, end_token, _ = stream.tokens.indices(symbols.shape[1])
    # flat, so that a compiled kernel meets one array type
    into = symbols.reshape(-1)[stream.first * symbols.shape[1] + first_token :]
    num_tokens = end_token - first_token
    _, fault = _decode(stream.read(), stream.tables, 0, 1, num_tokens, symbols.shape[1], into)
    if fault != SOUND:
        raise stream_error(stream.name, fault)


def _decode(
    coded: CodedStreams, tables: FrequencyTables, first: int, end: int, num_tokens: int, stride: int, into: Array
) -> tuple[int, int]:
    """Row and fault of the first of the rows that is not sound, or SOUND; channels lie ``stride`` apart."""
    return _decode_kernel(
        first,
        end,
        coded.states,
        coded.word_starts,
        # the kernel reads one before it knows whether it needs it
        coded.words if len(coded.words) else _NO_WORDS,
        coded.escape_starts,
        coded.escapes,
        tables.first,
        tables.frequencies,
        tables.starts,
        num_tokens,
        stride,
        into,
    )


@kernel
def count_kernel(symbols: Array, counts: Array) -> None:
    """Add the symbols to ``counts (rows, channels, 256)`` by alphabet index."""
    rows, channels, num_tokens = symbols.shape
    for row in range(rows):
        for channel in range(channels):
            for token in range(num_tokens):
                index = symbols[row, channel, token] + VALUE_OFFSET
                if index < 0 or index > ESCAPE:
                    index = ESCAPE
                counts[row, channel, index] += 1


@kernel
def _load_table(first: int, run: Array, frequency: Array, start: Array) -> None:
    """Spread one table's run over the alphabet: frequencies and their exclusive running sums."""
    frequency[:] = 0
    start[:] = 0
    total = np.uint32(0)
    for i in range(len(run)):
        frequency[first + i] = run[i]
        start[first + i] = total
        total += np.uint32(run[i])
    frequency[ESCAPE] = np.uint32(PROB_SUM) - total
    start[ESCAPE] = total


@kernel
def _encode_kernel(
    row: int,
    symbols: Array,
    first: Array,
    frequencies: Array,
    starts: Array,
    end_state: Array,
    words: Array,
    escapes: Array,
) -> tuple[int, int]:
    """Encode one row backwards from the ends of ``words`` and ``escapes``; returns how many of each there are."""
    _, channels, num_tokens = symbols.shape
    # a copy: threads that wrote side by side would fight for the cache line
    state = end_state.copy()
    lane_mask = len(state) - 1
    frequency = np.empty(ALPHABET, dtype=np.uint32)
    start = np.empty(ALPHABET, dtype=np.uint32)
    word_at = len(words)
    escape_at = len(escapes)
    for channel in range(channels - 1, -1, -1):
        table = row * channels + channel
        _load_table(first[row, channel], frequencies[starts[table] : starts[table + 1]], frequency, start)
        for token in range(num_tokens - 1, -1, -1):
            value = symbols[row, channel, token]
            index = value + VALUE_OFFSET
            if index < 0 or index >= ESCAPE or frequency[index] == 0:
                index = ESCAPE
                escape_at -= 1
                escapes[escape_at] = value
            lane = (channel * num_tokens + token) & lane_mask
            x = state[lane]
            f = frequency[index]
            if x >= f << _FULL_SHIFT:
                word_at -= 1
                words[word_at] = np.uint16(x & np.uint32(0xFFFF))
                x >>= _WORD_BITS
            quotient = x // f
            state[lane] = (quotient << _STATE_SHIFT) + (x - quotient * f) + start[index]
    end_state[:] = state
    return len(words) - word_at, len(escapes) - escape_at


@kernel
def _load_bounds(run: Array, bounds: Array) -> None:
    """Where the slots of each index of a run begin, then those of the escape, and where these end."""
    begin = np.uint32(0)
    for index in range(len(run)):
        bounds[index] = begin
        begin += np.uint32(run[index])
    bounds[len(run)] = begin
    bounds[len(run) + 1] = np.uint32(PROB_SUM)


@kernel
def _load_slots(bounds: Array, indices: int, slots: Array) -> None:
    """Whose each slot is."""
    for index in range(indices):
        for slot in range(bounds[index], bounds[index + 1]):
            slots[slot] = index


@kernel
def _search(bounds: Array, indices: int, slot: np.uint32) -> int:
    """Whose a slot is."""
    index = 0
    while indices > 1:
        half = indices >> 1
        if bounds[index + half] <= slot:
            index += half
        indices -= half
    return index


@kernel
def _decode_kernel(
    first_row: int,
    end_row: int,
    states: Array,
    word_starts: Array,
    words: Array,
    escape_starts: Array,
    escapes: Array,
    first: Array,
    frequencies: Array,
    starts: Array,
    num_tokens: int,
    stride: int,
    into: Array,
) -> tuple[int, int]:
    """Decode rows ``first_row..end_row-1``, whose channels lie ``stride`` apart in ``into``.

    Whether a state takes a word is as good as random: it is computed, not branched on. A stream that is too short is
    therefore decoded to its end, from words that are not its own, before it is found out.
    """
    channels = first.shape[1]
    lane_mask = states.shape[1] - 1
    last_word = len(words) - 1
    bounds = np.empty(ALPHABET + 1, dtype=np.uint32)
    slots = np.empty(PROB_SUM, dtype=np.uint8)
    has_slots = num_tokens >= _WORTH_SLOTS
    for row in range(first_row, end_row):
        state = states[row].copy()
        word_at, word_end = word_starts[row], word_starts[row + 1]
        escape_at, escape_end = escape_starts[row], escape_starts[row + 1]
        for channel in range(channels):
            table = row * channels + channel
            run = frequencies[starts[table] : starts[table + 1]]
            escape, offset = len(run), np.int32(first[row, channel]) - VALUE_OFFSET
            _load_bounds(run, bounds)
            if has_slots:
                _load_slots(bounds, escape + 1, slots)
            at = (table - first_row * channels) * stride
            out = into[at : at + num_tokens]
            for token in range(num_tokens):
                lane = (channel * num_tokens + token) & lane_mask
                x = state[lane]
                slot = x & _SLOT_MASK
                index = np.int64(slots[slot]) if has_slots else _search(bounds, escape + 1, slot)
                begin = bounds[index]
                x = (bounds[index + 1] - begin) * (x >> _STATE_SHIFT) + (slot - begin)
                word = np.uint32(words[min(word_at, last_word)])
                hungry = x < _LOW
                state[lane] = (x << _WORD_BITS) | word if hungry else x
                word_at += hungry
                if index != escape:
                    out[token] = index + offset
                else:
                    if escape_at < escape_end:
                        out[token] = escapes[escape_at]
                    escape_at += 1
        if word_at != word_end:
            return row, WORDS
        for lane in range(lane_mask + 1):
            if state[lane] != _LOW:
                return row, STATES
        if escape_at != escape_end:
            return row, ESCAPES
    return first_row, SOUND
