"""From counted symbols to the frequency tables of the coder."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cachegen.codecs.streams import varint_bytes
from cachegen.kernels.tables import ALPHABET, ESCAPE, PROB_SUM, VALUE_OFFSET, FrequencyTables

Counts = npt.NDArray[np.uint32]
Frequencies = npt.NDArray[np.int64]
F64 = npt.NDArray[np.float64]

# An escape costs a value's bytes in the escape list beside a symbol as rare as the value itself.
_ESCAPE_BITS = 8.0 * varint_bytes(np.arange(ESCAPE) - VALUE_OFFSET)


def build_tables(counts: Counts) -> FrequencyTables:
    """Tables of least expected cost on what was counted.

    Parameters
    ----------
    counts : uint32 array, ``(rows, channels, 256)``
        How often each index occurred; the last counts values outside -127..127.
    """
    rows, channels, _ = counts.shape
    # two bytes each from the start: eight would be half a gigabyte for a model of 7B
    frequencies = np.concatenate([_frequencies(row)[:, :ESCAPE].astype(np.uint16) for row in counts])
    present = frequencies > 0
    first = present.argmax(axis=1)
    count = ESCAPE - present[:, ::-1].argmax(axis=1) - first
    index = np.arange(ESCAPE)
    in_run = (index >= first[:, None]) & (index < (first + count)[:, None])
    return FrequencyTables(
        first.astype(np.uint8).reshape(rows, channels),
        count.astype(np.uint8).reshape(rows, channels),
        frequencies[in_run],
    )


def _frequencies(counts: Counts) -> Frequencies:
    """Frequencies ``(channels, 256)`` of one row; the escape's is at least 1, and so is the zero value's."""
    totals = counts.sum(axis=1, keepdims=True)
    weights = counts.astype(np.float64)
    # The least frequency, 1 of PROB_SUM, lengthens every other symbol; a value so rare that its escapes cost
    # less than that does not get one. log2(e) / PROB_SUM bits is what it costs each of the others.
    worth = counts[:, :ESCAPE] * _ESCAPE_BITS > totals * (np.log2(np.e) / PROB_SUM)
    worth[:, VALUE_OFFSET] = True
    # Good and Turing: what was seen once is as likely in all as what was never seen
    unseen = (counts[:, :ESCAPE] == 1).sum(axis=1)
    weights[:, ESCAPE] += np.where(worth, 0, weights[:, :ESCAPE]).sum(axis=1) + unseen
    weights[:, :ESCAPE][~worth] = 0
    weights[:, ESCAPE] = np.maximum(weights[:, ESCAPE], np.finfo(np.float64).tiny)
    weights[:, VALUE_OFFSET] = np.maximum(weights[:, VALUE_OFFSET], np.finfo(np.float64).tiny)
    return _apportion(weights)


def _apportion(weights: F64) -> Frequencies:
    """Whole numbers near the weights' shares of ``PROB_SUM``, at least 1 for each weight above 0.

    Rounded first; then one unit at a time is given to or taken from the entry where that costs least.
    """
    used = weights > 0
    shares = weights / weights.sum(axis=1, keepdims=True) * PROB_SUM
    result = np.where(used, np.maximum(1, np.rint(shares)), 0).astype(np.int64)
    for _ in range(ALPHABET):
        excess = result.sum(axis=1) - PROB_SUM
        rows = np.flatnonzero(excess)
        if len(rows) == 0:
            break
        # a unit saves or costs about weight / frequency; the middle of the step is exact enough
        values, weight, taking = result[rows], weights[rows], excess[rows] > 0
        cost = np.where(values > 1, weight / (values - 0.5), np.inf)
        saving = np.where(values > 0, weight / (values + 0.5), -np.inf)
        entry = np.where(taking, cost.argmin(axis=1), saving.argmax(axis=1))
        result[rows, entry] -= np.where(taking, 1, -1)
    assert (result.sum(axis=1) == PROB_SUM).all()
    return result
