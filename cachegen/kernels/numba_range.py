"""The published code's range coder for CPUs: the Numba twin of ``cachegen.kernels.range_coder``, bit for bit.

Where the reference takes a bit at a time, this takes all bits that one symbol settles at once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from cachegen.kernels.jit import kernel
from cachegen.kernels.range_coder import (
    FULL,
    HALF,
    PRECISION_BITS,
    QUARTER,
    RUN_TOKENS,
    U8,
    Cdfs,
    CodedRow,
    most_bytes,
    num_runs,
    run_spans,
    unsound_stream,
)

Array = npt.NDArray[Any]
_FULL, _HALF, _QUARTER = np.uint64(FULL), np.uint64(HALF), np.uint64(QUARTER)
_PRECISION = np.uint64(PRECISION_BITS)
_ZERO, _ONE, _BYTE, _WINDOW = np.uint64(0), np.uint64(1), np.uint64(8), np.uint64(32)
_TOP = np.uint64(31)
# A symbol leaves a span of 2**14 at least, and each bit shifted out doubles it: at most 18, fewer than a refill leaves.
_LEAST_READ = np.uint64(56)
# Bits of a double's exponent field, and what a number of one bit has there, less one.
_EXPONENT_SHIFT, _EXPONENT_BIAS = np.uint64(52), np.uint64(1022)


def encode_row(symbols: U8, cdfs: Cdfs) -> CodedRow:
    """See ``cachegen.kernels.range_coder.encode_row``."""
    channels, num_tokens = symbols.shape
    room = channels * sum(most_bytes(end - first) for first, end in run_spans(num_tokens))
    # pages that are not written cost nothing
    data = np.empty(room, dtype=np.uint8)
    lengths = np.empty((num_runs(num_tokens), channels), dtype=np.int32)
    end = _encode_kernel(np.ascontiguousarray(symbols), cdfs, lengths, data)
    return CodedRow(lengths, data[:end].copy())


def decode_row(coded: CodedRow, num_tokens: int, cdfs: Cdfs) -> U8:
    """See ``cachegen.kernels.range_coder.decode_row``."""
    symbols = np.empty((len(cdfs), num_tokens), dtype=np.uint8)
    run, channel = _decode_kernel(coded.lengths, coded.data, cdfs, symbols)
    if run >= 0:
        raise unsound_stream(run, channel)
    return symbols


@kernel
def _bit_length(x: np.uint64) -> np.uint64:
    """Bits of a number in 1..2**32 - 1, read off the exponent that it has as a double."""
    return (np.float64(np.int64(x)).view(np.uint64) >> _EXPONENT_SHIFT) - _EXPONENT_BIAS


@kernel
def _load_cdf(cdf: Array, starts: Array) -> None:
    """Widen a table so that its top symbol ends at 2**16."""
    num_symbols = len(cdf) - 1
    for i in range(num_symbols):
        starts[i] = cdf[i]
    starts[num_symbols] = 1 << PRECISION_BITS


@kernel
def _encode_kernel(symbols: Array, cdfs: Array, lengths: Array, data: Array) -> int:
    """Write all bitstreams; returns the end of the last."""
    channels, num_tokens = symbols.shape
    starts = np.empty(cdfs.shape[1], dtype=np.uint32)
    at = 0
    for run in range(lengths.shape[0]):
        first = run * RUN_TOKENS
        end = min(first + RUN_TOKENS, num_tokens)
        for channel in range(channels):
            _load_cdf(cdfs[channel], starts)
            stream_end = _encode_stream(symbols[channel, first:end], starts, data, at)
            lengths[run, channel] = stream_end - at
            at = stream_end
    return at


@kernel
def _encode_stream(symbols: Array, starts: Array, data: Array, at: int) -> int:
    """Write one bitstream at ``data[at:]``; returns its end."""
    low, high = _ZERO, _FULL
    pending = np.int64(0)
    # bits on their way out, the oldest on top; fewer than eight between two symbols
    waiting, num_waiting = _ZERO, _ZERO
    for symbol in symbols:
        span = high - low + _ONE
        high = low + (span * np.uint64(starts[symbol + 1]) >> _PRECISION) - _ONE
        low = low + (span * np.uint64(starts[symbol]) >> _PRECISION)
        settled = _WINDOW - _bit_length(low ^ high)
        if settled > _ZERO:
            if pending > 0:
                at, waiting, num_waiting = _put_pending(low >> _TOP, pending, waiting, num_waiting, data, at)
                pending = np.int64(0)
                rest = settled - _ONE
            else:
                rest = settled
            bits = (low >> (_WINDOW - settled)) & ((_ONE << rest) - _ONE)
            waiting = (waiting << rest) | bits
            num_waiting += rest
            while num_waiting >= _BYTE:
                num_waiting -= _BYTE
                data[at] = np.uint8((waiting >> num_waiting) & np.uint64(0xFF))
                at += 1
            low = (low << settled) & _FULL
            high = ((high << settled) & _FULL) | ((_ONE << settled) - _ONE)
        put_off = _num_put_off(low, high)
        pending += np.int64(put_off)
        low = (low << put_off) & (_HALF - _ONE)
        high = ((high << put_off) & _FULL) | _HALF | ((_ONE << put_off) - _ONE)
    last = _ZERO if low < _QUARTER else _ONE
    at, waiting, num_waiting = _put_pending(last, pending + 1, waiting, num_waiting, data, at)
    if num_waiting > _ZERO:
        data[at] = np.uint8((waiting << (_BYTE - num_waiting)) & np.uint64(0xFF))
        at += 1
    return at


@kernel
def _num_put_off(low: np.uint64, high: np.uint64) -> np.uint64:
    """How often bounds whose top bits are 0 and 1 can be doubled about the middle."""
    around = ((low & ~high) << _ONE) & _FULL
    return _WINDOW - _bit_length(around ^ _FULL)


@kernel
def _put_pending(
    bit: np.uint64, pending: np.int64, waiting: np.uint64, num_waiting: np.uint64, data: Array, at: int
) -> tuple[int, np.uint64, np.uint64]:
    """Put out a bit and its opposite ``pending`` times."""
    for i in range(pending + 1):
        waiting = (waiting << _ONE) | (bit if i == 0 else bit ^ _ONE)
        num_waiting += _ONE
        if num_waiting == _BYTE:
            data[at] = np.uint8(waiting & np.uint64(0xFF))
            at += 1
            num_waiting = _ZERO
    return at, waiting, num_waiting


@kernel
def _decode_kernel(lengths: Array, data: Array, cdfs: Array, symbols: Array) -> tuple[int, int]:
    """Fill ``symbols``; returns run and channel of the first unsound bitstream, or a negative run."""
    channels, num_tokens = symbols.shape
    starts = np.empty(cdfs.shape[1], dtype=np.uint32)
    at = 0
    for run in range(lengths.shape[0]):
        first = run * RUN_TOKENS
        end = min(first + RUN_TOKENS, num_tokens)
        for channel in range(channels):
            _load_cdf(cdfs[channel], starts)
            stream = data[at : at + lengths[run, channel]]
            if not _decode_stream(stream, starts, symbols[channel, first:end]):
                return run, channel
            at += len(stream)
    return -1, 0


@kernel
def _decode_stream(stream: Array, starts: Array, symbols: Array) -> bool:
    """Fill in the symbols of one bitstream; whether it is exactly what they encode to."""
    low, high = _ZERO, _FULL
    # bits that were read from the stream, the last of them not in the window yet
    at, read, num_unused = _read_on(stream, 0, _ZERO, _ZERO)
    num_unused -= _WINDOW
    value = read >> num_unused
    num_shifted = np.int64(0)
    top = len(starts) - 1
    for token in range(len(symbols)):
        span = high - low + _ONE
        target = np.uint32((((value - low + _ONE) << _PRECISION) - _ONE) // span)
        symbol = 0
        for start in starts[1:top]:
            symbol += start <= target
        symbols[token] = symbol
        high = low + (span * np.uint64(starts[symbol + 1]) >> _PRECISION) - _ONE
        low = low + (span * np.uint64(starts[symbol]) >> _PRECISION)
        settled = _WINDOW - _bit_length(low ^ high)
        low = (low << settled) & _FULL
        high = ((high << settled) & _FULL) | ((_ONE << settled) - _ONE)
        put_off = _num_put_off(low, high)
        low = (low << put_off) & (_HALF - _ONE)
        high = ((high << put_off) & _FULL) | _HALF | ((_ONE << put_off) - _ONE)
        shift = settled + put_off
        if num_unused < shift:
            at, read, num_unused = _read_on(stream, at, read, num_unused)
        num_unused -= shift
        value = ((value << shift) | ((read >> num_unused) & ((_ONE << shift) - _ONE))) & _FULL
        if put_off > _ZERO:
            value ^= _HALF
        num_shifted += np.int64(shift)
    # of the bits that ended the stream two are left in the window, then zeros up to the next byte
    return bool(len(stream) == (num_shifted + 2 + 7) // 8 and value == (_QUARTER if low < _QUARTER else _HALF))


@kernel
def _read_on(stream: Array, at: int, read: np.uint64, num_unused: np.uint64) -> tuple[int, np.uint64, np.uint64]:
    """Take whole bytes, zeros behind the end, until there are more bits than one symbol can settle and put off."""
    while num_unused <= _LEAST_READ:
        byte = np.uint64(stream[at]) if at < len(stream) else _ZERO
        read = (read << _BYTE) | byte
        num_unused += _BYTE
        at += 1
    return at, read, num_unused
