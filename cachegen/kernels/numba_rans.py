"""Interleaved rANS for CPUs: the Numba twin of ``cachegen.kernels.rans``, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from cachegen.kernels.base import STATE_LOW, CodedStreams, Symbols, num_lanes
from cachegen.kernels.jit import kernel
from cachegen.kernels.stream_faults import ESCAPES, SOUND, STATES, WORDS, stream_error
from cachegen.kernels.tables import ALPHABET, ESCAPE, PROB_BITS, PROB_SUM, VALUE_OFFSET, FrequencyTables

Array = npt.NDArray[Any]
_LOW = np.uint32(STATE_LOW)
_SLOT_MASK = np.uint32(PROB_SUM - 1)
_STATE_SHIFT = np.uint32(PROB_BITS)
_FULL_SHIFT = np.uint32(32 - PROB_BITS)
_WORD_BITS = np.uint32(16)
_FREQUENCY_SHIFT = np.uint32(12)
_INDEX_SHIFT = np.uint32(24)


def encode_streams(symbols: Symbols, tables: FrequencyTables) -> CodedStreams:
    """See ``cachegen.kernels.rans.encode_streams``."""
    rows, channels, num_tokens = symbols.shape
    states = np.full((rows, num_lanes(channels * num_tokens)), STATE_LOW, dtype=np.uint32)
    counts = np.zeros((2, rows), dtype=np.int64)
    # a symbol emits at most one word and one escape; pages that are not written cost nothing
    words = np.empty(symbols.size, dtype=np.uint16)
    escapes = np.empty(symbols.size, dtype=np.int32)
    _encode_kernel(
        np.ascontiguousarray(symbols),
        tables.first,
        tables.frequencies,
        tables.starts,
        states,
        counts,
        words,
        escapes,
    )
    num_words, num_escapes = int(counts[0].sum()), int(counts[1].sum())
    return CodedStreams(states, counts[0], words[:num_words].copy(), counts[1], escapes[:num_escapes].copy())


def decode_streams(coded: CodedStreams, num_tokens: int, tables: FrequencyTables) -> Symbols:
    """See ``cachegen.kernels.rans.decode_streams``."""
    rows = len(coded.states)
    symbols = np.empty((rows, tables.channels, num_tokens), dtype=np.int32)
    row, reason = _decode_kernel(
        coded.states.copy(),
        coded.num_words,
        coded.words,
        coded.num_escapes,
        coded.escapes,
        tables.first,
        tables.frequencies,
        tables.starts,
        symbols,
    )
    if reason != SOUND:
        raise stream_error(row, reason)
    return symbols


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
    symbols: Array,
    first: Array,
    frequencies: Array,
    starts: Array,
    states: Array,
    counts: Array,
    words: Array,
    escapes: Array,
) -> None:
    rows, channels, num_tokens = symbols.shape
    lane_mask = states.shape[1] - 1
    frequency = np.empty(ALPHABET, dtype=np.uint32)
    start = np.empty(ALPHABET, dtype=np.uint32)
    word_end = 0
    escape_end = 0
    for row in range(rows):
        state = states[row]
        # written backwards from the end of the row's share, then moved down to where the last row ended
        share_end = (row + 1) * channels * num_tokens
        word_at = share_end
        escape_at = share_end
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
        counts[0, row] = share_end - word_at
        counts[1, row] = share_end - escape_at
        for i in range(counts[0, row]):
            words[word_end + i] = words[word_at + i]
        for i in range(counts[1, row]):
            escapes[escape_end + i] = escapes[escape_at + i]
        word_end += counts[0, row]
        escape_end += counts[1, row]


@kernel
def _load_slots(first: int, run: Array, slots: Array) -> None:
    """For each slot its index, the index's frequency and the slot's offset within it, packed in 32 bits."""
    slot = 0
    for i in range(len(run)):
        f = np.uint32(run[i])
        head = (np.uint32(first + i) << _INDEX_SHIFT) | (f << _FREQUENCY_SHIFT)
        for offset in range(run[i]):
            slots[slot + offset] = head | np.uint32(offset)
        slot += run[i]
    head = (np.uint32(ESCAPE) << _INDEX_SHIFT) | (np.uint32(PROB_SUM - slot) << _FREQUENCY_SHIFT)
    for offset in range(PROB_SUM - slot):
        slots[slot + offset] = head | np.uint32(offset)


@kernel
def _decode_kernel(
    states: Array,
    num_words: Array,
    words: Array,
    num_escapes: Array,
    escapes: Array,
    first: Array,
    frequencies: Array,
    starts: Array,
    symbols: Array,
) -> tuple[int, int]:
    rows, channels, num_tokens = symbols.shape
    lane_mask = states.shape[1] - 1
    slots = np.empty(PROB_SUM, dtype=np.uint32)
    word_at = 0
    escape_at = 0
    for row in range(rows):
        state = states[row]
        word_end = word_at + num_words[row]
        escape_end = escape_at + num_escapes[row]
        for channel in range(channels):
            table = row * channels + channel
            _load_slots(first[row, channel], frequencies[starts[table] : starts[table + 1]], slots)
            out = symbols[row, channel]
            for token in range(num_tokens):
                lane = (channel * num_tokens + token) & lane_mask
                x = state[lane]
                entry = slots[x & _SLOT_MASK]
                f = (entry >> _FREQUENCY_SHIFT) & _SLOT_MASK
                x = f * (x >> _STATE_SHIFT) + (entry & _SLOT_MASK)
                if x < _LOW:
                    if word_at >= word_end:
                        return row, WORDS
                    x = (x << _WORD_BITS) | np.uint32(words[word_at])
                    word_at += 1
                state[lane] = x
                index = np.int32(entry >> _INDEX_SHIFT)
                if index == ESCAPE:
                    if escape_at >= escape_end:
                        return row, ESCAPES
                    out[token] = escapes[escape_at]
                    escape_at += 1
                else:
                    out[token] = index - VALUE_OFFSET
        if word_at != word_end:
            return row, WORDS
        for lane in range(lane_mask + 1):
            if state[lane] != _LOW:
                return row, STATES
        if escape_at != escape_end:
            return row, ESCAPES
    return rows, SOUND
