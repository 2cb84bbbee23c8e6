"""Interleaved rANS for GPUs: the Triton twin of ``cachegen.kernels.rans``, bit for bit.

One program codes one row, one thread of its warp one lane. Rows of any shape and of any number of chunks go in one
launch, since one chunk's fill a small part of a chip; a matrix of ``ROW_FIELDS`` describes them.

What a row costs is the chain from one block of lanes to the next. An index is found by halving the run of its table, of
which every lane of a warp reads the same few hundred bytes. Lanes learn which of them take a word from one reduction
over the warp: each adds its own bit, and the set bits below its own are its rank.
"""

from __future__ import annotations

import triton.language as tl

from cachegen.kernels.base import MAX_LANES, STATE_LOW
from cachegen.kernels.stream_faults import ESCAPES, SOUND, STATES, WORDS
from cachegen.kernels.tables import PROB_BITS, PROB_SUM, VALUE_OFFSET
from cachegen.kernels.triton_jit import kernel, popcount

# int64 columns: the shape of a row, its tables, and where in the flat tensors its parts begin and how long they are.
ROW_FIELDS = (
    "channels",
    "tokens",
    "lanes",
    "first_table",
    "search_steps",
    "first_symbol",
    "first_word",
    "num_words",
    "first_escape",
    "num_escapes",
)
LAUNCH = {"num_warps": 1, "num_stages": 1}
COPY_BLOCK = 1024
COPY_LAUNCH = {"num_warps": 4}

_FIELDS = tl.constexpr(len(ROW_FIELDS))
_CHANNELS = tl.constexpr(ROW_FIELDS.index("channels"))
_TOKENS = tl.constexpr(ROW_FIELDS.index("tokens"))
_LANES = tl.constexpr(ROW_FIELDS.index("lanes"))
_FIRST_TABLE = tl.constexpr(ROW_FIELDS.index("first_table"))
_SEARCH_STEPS = tl.constexpr(ROW_FIELDS.index("search_steps"))
_FIRST_SYMBOL = tl.constexpr(ROW_FIELDS.index("first_symbol"))
_FIRST_WORD = tl.constexpr(ROW_FIELDS.index("first_word"))
_NUM_WORDS = tl.constexpr(ROW_FIELDS.index("num_words"))
_FIRST_ESCAPE = tl.constexpr(ROW_FIELDS.index("first_escape"))
_NUM_ESCAPES = tl.constexpr(ROW_FIELDS.index("num_escapes"))

_WARP = tl.constexpr(MAX_LANES)
_LOW = tl.constexpr(STATE_LOW)
_PROB_BITS = tl.constexpr(PROB_BITS)
_PROB_SUM = tl.constexpr(PROB_SUM)
_FULL_SHIFT = tl.constexpr(32 - PROB_BITS)
_OFFSET = tl.constexpr(VALUE_OFFSET)
_SOUND = tl.constexpr(SOUND)
_WORDS = tl.constexpr(WORDS)
_STATES = tl.constexpr(STATES)
_ESCAPES = tl.constexpr(ESCAPES)


@kernel
def _ballot(predicate: tl.tensor, bit: tl.tensor) -> tl.tensor:
    """Bits of the lanes for which the predicate holds, known to all of them."""
    return tl.sum(tl.where(predicate, bit, 0))


@kernel
def _search(cumulative: tl.tensor, slot: tl.tensor, count: tl.tensor, steps: tl.tensor) -> tl.tensor:
    """Largest index of each lane's table, at most ``count``, that starts at its slot or below."""
    index = tl.zeros_like(count)
    for step in range(steps):
        candidate = index + (1 << (steps - 1 - step))
        start = tl.load(cumulative + candidate, mask=candidate <= count, other=_PROB_SUM)
        index = tl.where(start <= slot, candidate, index)
    return index


@kernel
def decode_kernel(
    rows: tl.tensor,
    states: tl.tensor,
    words: tl.tensor,
    escapes: tl.tensor,
    entries: tl.tensor,
    cumulative: tl.tensor,
    symbols: tl.tensor,
    faults: tl.tensor,
) -> None:
    """Symbols of one row, and what is wrong with its stream; reads and writes inside the row whatever its words are."""
    program = tl.program_id(0).to(tl.int64)
    row = rows + program * _FIELDS
    tokens = tl.load(row + _TOKENS).to(tl.int32)
    lanes = tl.load(row + _LANES).to(tl.int32)
    first_table = tl.load(row + _FIRST_TABLE)
    steps = tl.load(row + _SEARCH_STEPS).to(tl.int32)
    num_symbols = tl.load(row + _CHANNELS) * tokens
    words += tl.load(row + _FIRST_WORD)
    num_words = tl.load(row + _NUM_WORDS)
    escapes += tl.load(row + _FIRST_ESCAPE)
    num_escapes = tl.load(row + _NUM_ESCAPES)
    symbols += tl.load(row + _FIRST_SYMBOL)

    lane = tl.arange(0, _WARP)
    bit = tl.full((_WARP,), 1, tl.uint32) << lane.to(tl.uint32)
    x = tl.load(states + program * _WARP + lane, mask=lane < lanes, other=_LOW)
    channel, token = lane // tokens, lane % tokens
    active = (lane < lanes) & (lane < num_symbols)
    entry = tl.load(entries + first_table + channel, mask=active, other=0)
    next_word = tl.zeros_like(num_words)
    next_escape = tl.zeros_like(num_words)
    for base in range(0, num_symbols, lanes):
        # the tables of the next block, so that it need not wait for them
        token += lanes % tokens
        channel += lanes // tokens + (token >= tokens).to(tl.int32)
        token = tl.where(token >= tokens, token - tokens, token)
        more = (lane < lanes) & (base + lanes + lane < num_symbols)
        next_entry = tl.load(entries + first_table + channel, mask=more, other=0)

        count = ((entry >> 8) & 0xFF).to(tl.int32)
        table = cumulative + (entry >> 16)
        slot = (x & (_PROB_SUM - 1)).to(tl.int32)
        index = _search(table, slot, count, steps)
        start = tl.load(table + index, mask=active, other=0).to(tl.uint32)
        end = tl.load(table + index + 1, mask=active, other=1).to(tl.uint32)
        x = tl.where(active, (end - start) * (x >> _PROB_BITS) + slot.to(tl.uint32) - start, x)

        hungry = active & (x < _LOW)
        takers = _ballot(hungry, bit)
        word_at = next_word + popcount(takers & (bit - 1))
        word = tl.load(words + word_at, mask=hungry & (word_at < num_words), other=0)
        x = tl.where(hungry, (x << 16) | word.to(tl.uint32), x)
        next_word += popcount(takers)

        value = (entry & 0xFF).to(tl.int32) + index - _OFFSET
        escaped = active & (index == count)
        takers = _ballot(escaped, bit)
        if takers != 0:
            escape_at = next_escape + popcount(takers & (bit - 1))
            escape = tl.load(escapes + escape_at, mask=escaped & (escape_at < num_escapes), other=0)
            value = tl.where(escaped, escape, value)
            next_escape += popcount(takers)
        tl.store(symbols + base + lane, value, mask=active)
        active = more
        entry = next_entry
    fault = tl.where(next_escape == num_escapes, _SOUND, _ESCAPES)
    fault = tl.where(_ballot(x != _LOW, bit) == 0, fault, _STATES)
    tl.store(faults + program, tl.where(next_word == num_words, fault, _WORDS))


@kernel
def encode_kernel(
    rows: tl.tensor,
    symbols: tl.tensor,
    entries: tl.tensor,
    cumulative: tl.tensor,
    states: tl.tensor,
    words: tl.tensor,
    escapes: tl.tensor,
    counts: tl.tensor,
) -> None:
    """States, words and escapes of one row; these two end where its symbols would, ``counts (rows, 2)`` of them."""
    program = tl.program_id(0).to(tl.int64)
    row = rows + program * _FIELDS
    tokens = tl.load(row + _TOKENS).to(tl.int32)
    lanes = tl.load(row + _LANES).to(tl.int32)
    first_table = tl.load(row + _FIRST_TABLE)
    num_symbols = tl.load(row + _CHANNELS) * tokens
    first_symbol = tl.load(row + _FIRST_SYMBOL)
    symbols += first_symbol
    words += first_symbol
    escapes += first_symbol

    lane = tl.arange(0, _WARP)
    bit = tl.full((_WARP,), 1, tl.uint32) << lane.to(tl.uint32)
    x = tl.full((_WARP,), _LOW, tl.uint32)
    word_end = num_symbols
    escape_end = num_symbols
    num_blocks = (num_symbols + lanes - 1) // lanes
    at = (num_blocks - 1) * lanes + lane
    channel, token = (at // tokens).to(tl.int32), (at % tokens).to(tl.int32)
    for _ in range(num_blocks):
        active = (lane < lanes) & (at < num_symbols)
        entry = tl.load(entries + first_table + channel, mask=active, other=0)
        value = tl.load(symbols + at, mask=active, other=0)
        count = ((entry >> 8) & 0xFF).to(tl.int32)
        table = cumulative + (entry >> 16)
        index = value + _OFFSET - (entry & 0xFF).to(tl.int32)
        coded = active & (index >= 0) & (index < count)
        start = tl.load(table + index, mask=coded, other=0)
        coded = coded & (tl.load(table + index + 1, mask=coded, other=0) > start)
        index = tl.where(coded, index, count)
        start = tl.load(table + index, mask=active, other=0).to(tl.uint32)
        frequency = tl.load(table + index + 1, mask=active, other=1).to(tl.uint32) - start

        escaped = active & (coded == 0)
        givers = _ballot(escaped, bit)
        escape_end -= popcount(givers)
        tl.store(escapes + escape_end + popcount(givers & (bit - 1)), value, mask=escaped)

        full = active & (x >= frequency << _FULL_SHIFT)
        givers = _ballot(full, bit)
        word_end -= popcount(givers)
        tl.store(words + word_end + popcount(givers & (bit - 1)), (x & 0xFFFF).to(tl.uint16), mask=full)
        x = tl.where(full, x >> 16, x)
        quotient = x // frequency
        x = tl.where(active, (quotient << _PROB_BITS) + (x - quotient * frequency) + start, x)

        at -= lanes
        token -= lanes % tokens
        channel -= lanes // tokens + (token < 0).to(tl.int32)
        token = tl.where(token < 0, token + tokens, token)
    tl.store(states + program * _WARP + lane, x)
    tl.store(counts + 2 * program, num_symbols - word_end)
    tl.store(counts + 2 * program + 1, num_symbols - escape_end)


@kernel
def move_kernel(
    source: tl.tensor, starts: tl.tensor, target: tl.tensor, target_starts: tl.tensor, block: tl.constexpr
) -> None:
    """Copy one row's share of a tensor: from ``starts[row]`` on to ``target_starts[row]`` up to the next row's."""
    row = tl.program_id(0).to(tl.int64)
    source += tl.load(starts + row)
    first, end = tl.load(target_starts + row), tl.load(target_starts + row + 1)
    for base in range(0, end - first, block):
        at = base + tl.arange(0, block)
        inside = at < end - first
        tl.store(target + first + at, tl.load(source + at, mask=inside), mask=inside)
