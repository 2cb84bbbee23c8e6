"""Interleaved rANS in plain NumPy: slow, obvious, and the reference of every backend.

States are 32-bit in [2**16, 2**32), words 16-bit, frequencies 12-bit. Symbol ``i`` of a row belongs to lane
``i mod lanes``. rANS is last in, first out: the encoder walks the symbols backwards and its words are stored
in reverse, so that the decoder walks both forwards. One step here is one symbol of every lane of every row.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cachegen.errors import FormatError
from cachegen.kernels.base import STATE_LOW, CodedStreams, Symbols, num_lanes
from cachegen.kernels.tables import ALPHABET, ESCAPE, PROB_BITS, PROB_SUM, VALUE_OFFSET, FrequencyTables

U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]


def encode_streams(symbols: Symbols, tables: FrequencyTables) -> CodedStreams:
    """Streams of ``symbols (rows, channels, tokens)``, one for each row."""
    rows, _, num_tokens = symbols.shape
    frequencies, starts = _dense(tables, range(rows))
    indices, is_escape = _indices(symbols, frequencies)
    num_symbols = indices.shape[1]
    lanes = num_lanes(num_symbols)
    states = np.full((rows, lanes), STATE_LOW, dtype=np.uint64)
    words: list[list[int]] = [[] for _ in range(rows)]
    for base in reversed(range(0, num_symbols, lanes)):
        block = np.arange(base, min(base + lanes, num_symbols))
        at = (np.arange(rows)[:, None], block // num_tokens, indices[:, block])
        frequency, start = frequencies[at], starts[at]
        state = states[:, : len(block)]
        full = state >= frequency << np.uint64(32 - PROB_BITS)
        for row in range(rows):
            words[row].extend(int(word) & 0xFFFF for word in state[row, full[row]][::-1])
        state = np.where(full, state >> np.uint64(16), state)
        states[:, : len(block)] = (state // frequency << np.uint64(PROB_BITS)) + state % frequency + start
    return CodedStreams(
        states.astype(np.uint32),
        np.array([len(row) for row in words], dtype=np.int64),
        np.array([word for row in words for word in reversed(row)], dtype=np.uint16),
        is_escape.sum(axis=1, dtype=np.int64),
        symbols.reshape(rows, -1)[is_escape],
    )


def decode_streams(coded: CodedStreams, num_tokens: int, tables: FrequencyTables, which: slice) -> Symbols:
    """Symbols ``(rows, channels, num_tokens)`` of some rows; FormatError names the first that is not sound."""
    of_all = range(*which.indices(len(coded.states)))
    frequencies, starts = _dense(tables, of_all)
    rows, lanes = len(of_all), coded.states.shape[1]
    num_symbols = tables.channels * num_tokens
    indices = np.empty((rows, num_symbols), dtype=np.int64)
    states = coded.states[which].astype(np.uint64)
    position, row_ends = coded.word_starts[:-1][which].copy(), coded.word_starts[1:][which]
    words = np.append(coded.words, np.zeros(lanes, dtype=np.uint16)).astype(np.uint64)
    for base in range(0, num_symbols, lanes):
        block = np.arange(base, min(base + lanes, num_symbols))
        state = states[:, : len(block)]
        slot = state % np.uint64(PROB_SUM)
        table_at = (np.arange(rows)[:, None], block // num_tokens)
        index = (starts[table_at] <= slot[:, :, None]).sum(axis=2) - 1
        at = (*table_at, index)
        state = frequencies[at] * (state >> np.uint64(PROB_BITS)) + slot - starts[at]
        hungry = state < STATE_LOW
        # lanes take words in symbol order; past a row's end any word will do, the check below refuses it
        word_at = np.minimum(position[:, None] + np.cumsum(hungry, axis=1) - 1, len(words) - 1)
        states[:, : len(block)] = np.where(hungry, (state << np.uint64(16)) | words[word_at], state)
        position += hungry.sum(axis=1)
        indices[:, block] = index
    _check_ends(of_all, states, position - row_ends, (indices == ESCAPE).sum(axis=1) - coded.num_escapes[which])
    values = (indices - VALUE_OFFSET).astype(np.int32)
    first, end = coded.escape_starts[[of_all.start, of_all.stop]]
    values[indices == ESCAPE] = coded.escapes[first:end]
    return values.reshape(rows, tables.channels, num_tokens)


def _dense(tables: FrequencyTables, rows: range) -> tuple[U64, U64]:
    """Frequencies and their exclusive running sums, each ``(rows, channels, 256)``."""
    dense = [[tables.dense(row, channel) for channel in range(tables.channels)] for row in rows]
    frequencies = np.array(dense, dtype=np.uint64).reshape(len(rows), tables.channels, ALPHABET)
    return frequencies, np.cumsum(frequencies, axis=2) - frequencies


def _indices(symbols: Symbols, frequencies: U64) -> tuple[I64, npt.NDArray[np.bool_]]:
    """Alphabet index of each symbol of each row in coding order, and whether it is an escape."""
    rows, channels, _ = symbols.shape
    indices = symbols.astype(np.int64) + VALUE_OFFSET
    inside = (indices >= 0) & (indices < ESCAPE)
    indices = np.where(inside, indices, ESCAPE)
    coded = frequencies[np.arange(rows)[:, None, None], np.arange(channels)[:, None], indices] > 0
    indices = np.where(coded, indices, ESCAPE).reshape(rows, -1)
    return indices, indices == ESCAPE


def _check_ends(rows: range, states: U64, extra_words: I64, extra_escapes: I64) -> None:
    """Refuse rows that did not end where their encoder began."""
    for i, row in enumerate(rows):
        if extra_words[i] != 0:
            raise FormatError(f"rANS stream of row {row}: used {extra_words[i]:+d} words of those it has")
        if (states[i] != STATE_LOW).any():
            raise FormatError(f"rANS stream of row {row}: a lane does not end in its start state")
        if extra_escapes[i] != 0:
            raise FormatError(f"rANS stream of row {row}: used {extra_escapes[i]:+d} escapes of those it has")
