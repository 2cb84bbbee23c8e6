"""Our entropy coder against constriction's, on the same symbols with the same tables, on one core.

The symbols are the deltas of the ``cachegen`` codec at the paper's bins, in the first chunk. ``constriction`` is used
the fastest way that it offers from Python for one static table a channel: a ``Categorical`` model for each channel,
made beforehand, with ``perfect=False``, over no more than the channel's own run of values and the escape; then one call
a channel. (Its other way, a table for each symbol, is slower and needs more memory.) Both of its coders are measured,
though only ``RangeEncoder`` is a range coder. It quantizes probabilities finer than our 12 bits, so sizes differ by a
hair.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import constriction
import numpy as np
import numpy.typing as npt

from cachegen.benchmark.timing import one_core, timed
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
        return [
            _ours(symbols, tables),
            _theirs("constriction range coder", channels, _encode_range, constriction.stream.queue.RangeDecoder),
            _theirs("constriction ANS coder", channels, _encode_ans, constriction.stream.stack.AnsCoder),
        ]


def _ours(symbols: Symbols, tables: FrequencyTables) -> dict[str, Any]:
    backend = get_backend("numba")
    coded, encode_s = timed(lambda: backend.encode_streams(symbols, tables))
    decoded, decode_s = timed(lambda: backend.decode_streams(coded, symbols.shape[2], tables, slice(None)))
    assert np.array_equal(decoded, symbols)
    return _rates("rANS, Numba", symbols.size, 8 * len(write_streams(coded)), encode_s, decode_s)


def _theirs(
    name: str,
    channels: list[_Channel],
    encode: Callable[[list[_Channel], list[Any]], npt.NDArray[np.uint32]],
    make_decoder: Callable[[npt.NDArray[np.uint32]], Any],
) -> dict[str, Any]:
    models = [constriction.stream.model.Categorical(channel.probabilities, perfect=False) for channel in channels]
    num_tokens = len(channels[0].numbers)
    words, encode_s = timed(lambda: encode(channels, models))

    def decode() -> list[npt.NDArray[np.int32]]:
        decoder = make_decoder(words)
        return [decoder.decode(model, num_tokens) for model in models]

    decoded, decode_s = timed(decode)
    assert all(np.array_equal(a, channel.numbers) for a, channel in zip(decoded, channels, strict=True))
    return _rates(name, num_tokens * len(channels), 32 * len(words), encode_s, decode_s)


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


def _rates(name: str, num_symbols: int, num_bits: int, encode_s: float, decode_s: float) -> dict[str, Any]:
    return {
        "coder": name,
        "symbols": num_symbols,
        "bits_per_symbol": num_bits / num_symbols,
        "encode_symbols_s": num_symbols / encode_s,
        "decode_symbols_s": num_symbols / decode_s,
    }
