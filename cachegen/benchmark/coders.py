"""Our entropy coder against constriction's, on the same symbols with the same tables, on one core.

The symbols are the deltas of the ``cachegen`` codec at the paper's bins, in the first chunk. ``constriction`` is used
the fastest way that it offers from Python for one static table a channel: a ``Categorical`` model for each channel,
made beforehand, with ``perfect=False``, over no more than the channel's own run of values and the escape; then one call
a channel. (Its other way, a table for each symbol, is slower and needs more memory.) Both of its coders are measured,
though only ``RangeEncoder`` is a range coder. It quantizes probabilities finer than our 12 bits, so sizes differ by a
hair. Ours decodes a row at a time, as the codec does, and theirs a channel.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import constriction
import numpy as np
import numpy.typing as npt

from cachegen.benchmark.timing import one_core, timed_in_turns
from cachegen.codecs.cachegen import as_rows
from cachegen.codecs.streams import write_streams
from cachegen.held_out import HeldOutText
from cachegen.kernels import get_backend
from cachegen.kernels.anchor import LEVEL_MULTIPLIERS
from cachegen.kernels.base import Symbols
from cachegen.kernels.tables import PROB_SUM, VALUE_OFFSET, FrequencyTables
from cachegen.profile import Profile

_PAPER_LEVEL = LEVEL_MULTIPLIERS.index(1.0)


@dataclass(frozen=True)
class _Channel:
    """The symbols of one channel as numbers from 0 on, the last one the escape, and the table's probabilities."""

    numbers: npt.NDArray[np.int32]
    probabilities: npt.NDArray[np.float32]


@dataclass(frozen=True)
class _Coder:
    """A coder with the symbols: what it makes of them, and what does it again."""

    name: str
    num_bits: int
    encode: Callable[[], object]
    decode: Callable[[], Iterator[object]]


def compare_coders(text: HeldOutText, profile: Profile) -> list[dict[str, Any]]:
    """Symbol rates of each coder.

    Returns
    -------
    list of dict
        ``coder``, ``symbols``, ``bits_per_symbol``, ``encode_symbols_s``, ``decode_symbols_s`` (symbols a second). The
        first is ours; of the others, escaped values themselves are not coded. Empty where the first chunk has one
        token: it is an anchor, and there are no deltas.
    """
    tables = profile.tables.deltas[_PAPER_LEVEL]
    symbols = get_backend("numba").quantize(as_rows(text.chunks()[0].cpu()), _PAPER_LEVEL).deltas
    if symbols.size == 0:
        return []
    channels = _channels(symbols, tables)
    with one_core():
        coders = [
            _ours(symbols, tables),
            _theirs("constriction range coder", channels, _encode_range, constriction.stream.queue.RangeDecoder),
            _theirs("constriction ANS coder", channels, _encode_ans, constriction.stream.stack.AnsCoder),
        ]
        encode_s = timed_in_turns([coder.encode for coder in coders])
        # each piece is dropped at once, so that no coder asks the system for memory again and again
        decode_s = timed_in_turns([partial(_exhaust, coder.decode) for coder in coders])
    return [
        {
            "coder": coder.name,
            "symbols": symbols.size,
            "bits_per_symbol": coder.num_bits / symbols.size,
            "encode_symbols_s": symbols.size / encode,
            "decode_symbols_s": symbols.size / decode,
        }
        for coder, encode, decode in zip(coders, encode_s, decode_s, strict=True)
    ]


def _exhaust(decode: Callable[[], Iterator[object]]) -> None:
    deque(decode(), maxlen=0)


def _ours(symbols: Symbols, tables: FrequencyTables) -> _Coder:
    backend = get_backend("numba")
    coded = backend.encode_streams(symbols, tables)

    def decode() -> Iterator[Symbols]:
        for row in range(len(symbols)):
            yield backend.decode_streams(coded, symbols.shape[2], tables, slice(row, row + 1))

    assert np.array_equal(np.concatenate(list(decode())), symbols)
    bits = 8 * len(write_streams(coded))
    return _Coder("rANS, Numba", bits, lambda: backend.encode_streams(symbols, tables), decode)


def _theirs(
    name: str,
    channels: list[_Channel],
    encode: Callable[[list[_Channel], list[Any]], npt.NDArray[np.uint32]],
    make_decoder: Callable[[npt.NDArray[np.uint32]], Any],
) -> _Coder:
    models = [constriction.stream.model.Categorical(channel.probabilities, perfect=False) for channel in channels]
    num_tokens = len(channels[0].numbers)
    words = encode(channels, models)

    def decode() -> Iterator[npt.NDArray[np.int32]]:
        decoder = make_decoder(words)
        for model in models:
            yield decoder.decode(model, num_tokens)

    assert all(np.array_equal(a, channel.numbers) for a, channel in zip(decode(), channels, strict=True))
    return _Coder(name, 32 * len(words), lambda: encode(channels, models), decode)


def _encode_range(channels: list[_Channel], models: list[Any]) -> npt.NDArray[np.uint32]:
    encoder = constriction.stream.queue.RangeEncoder()
    for channel, model in zip(channels, models, strict=True):
        encoder.encode(channel.numbers, model)
    words: npt.NDArray[np.uint32] = encoder.get_compressed()
    return words


def _encode_ans(channels: list[_Channel], models: list[Any]) -> npt.NDArray[np.uint32]:
    encoder = constriction.stream.stack.AnsCoder()
    # last in, first out
    for channel, model in zip(reversed(channels), reversed(models), strict=True):
        encoder.encode_reverse(channel.numbers, model)
    words: npt.NDArray[np.uint32] = encoder.get_compressed()
    return words


def _channels(symbols: Symbols, tables: FrequencyTables) -> list[_Channel]:
    return [
        _channel(symbols[row, channel], tables.dense(row, channel), int(tables.first[row, channel]), count)
        for (row, channel), count in np.ndenumerate(tables.count.astype(int))
    ]


def _channel(values: npt.NDArray[np.int32], frequencies: npt.NDArray[np.int64], first: int, count: int) -> _Channel:
    run = np.append(frequencies[first : first + count], frequencies[-1])
    numbers = values + (VALUE_OFFSET - first)
    inside = (numbers >= 0) & (numbers < count)
    coded = inside & (run[np.where(inside, numbers, 0)] > 0)
    return _Channel(np.where(coded, numbers, count).astype(np.int32), (run / PROB_SUM).astype(np.float32))
