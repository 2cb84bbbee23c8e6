"""What symbols cost in bits with one or other prediction and tables: for an encoder that chooses, on CPUs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from cachegen.kernels.jit import kernel
from cachegen.kernels.numba_prediction import weighted
from cachegen.kernels.tables import PROB_BITS, VALUE_OFFSET, FrequencyTables
from cachegen.kernels.workers import share_among_threads

Array = npt.NDArray[Any]
F32 = npt.NDArray[np.float32]
# Bits of an escaped value beside its index: most take two bytes.
_ESCAPED_BITS = 16.0
# Every so-manieth coefficient is looked at: what they cost tells what all do.
SAMPLED = 4


@dataclass(frozen=True)
class CostTables:
    """Bits of each symbol of some coefficients in several sets of tables, one set behind the other.

    Parameters
    ----------
    first, count : int64 arrays, ``(sets, coefficients)``
        Runs of indices that have bits of their own; the others cost what an escape does.
    start : int64 array, ``(sets, coefficients)``
        Of each run in ``bits``.
    bits : float32 array, flat
    escape : float32 array, ``(sets, coefficients)``
    """

    first: Array
    count: Array
    start: Array
    bits: F32
    escape: F32


def cost_tables(tables: Sequence[FrequencyTables]) -> CostTables:
    """Of the first row of each; they need not have equally many coefficients."""
    shape = (len(tables), max(each.channels for each in tables))
    first, count, start = (np.zeros(shape, dtype=np.int64) for _ in range(3))
    escape, bits, size = np.zeros(shape, dtype=np.float32), [], 0
    for which, each in enumerate(tables):
        own = (which, slice(each.channels))
        first[own], count[own], start[own] = each.first[0], each.count[0], each.starts[:-1] + size
        escape[own] = PROB_BITS - np.log2(each.escape_frequencies()[0]) + _ESCAPED_BITS
        # within a run, what has no frequency is escaped; that is rare enough for any large number
        bits.append(PROB_BITS - np.log2(np.maximum(each.frequencies, 2.0**-_ESCAPED_BITS)).astype(np.float32))
        size += len(each.frequencies)
    return CostTables(first, count, start, np.concatenate(bits), escape)


def token_costs(
    symbols: npt.NDArray[np.int32], involved: Array, weights: Array, sets: Array, ranks: Array, tables: CostTables
) -> F32:
    """Bits of each token's symbols, nearly: every ``SAMPLED``-th coefficient's, so many times.

    Parameters
    ----------
    symbols : int32 array, ``(coefficients, tokens)``
    involved : int64 array, ``(tokens, 3)``
        Columns of a token and of its two references.
    weights : int32 array, ``(tokens, modes, 2)``
        Of the references, see ``Predictions``.
    sets : int64 array, ``(tokens, choices)``
        Tables that may code a token; -1 for none.
    ranks : int64 array, ``(tokens,)``
        How many coefficients of a token are coded.
    tables : CostTables

    Returns
    -------
    float32 array, ``(tokens, modes, choices)``
        Infinite where there are no tables.
    """
    costs = np.zeros((len(involved), weights.shape[1], sets.shape[1]), dtype=np.float32)

    def work(which: slice) -> None:
        of_tables = (tables.first, tables.count, tables.start, tables.bits, tables.escape)
        _costs_kernel(which.start, which.stop, symbols, involved, weights, sets, ranks, *of_tables, costs)

    share_among_threads(work, len(involved))
    costs *= SAMPLED
    costs[np.broadcast_to(sets[:, None] < 0, costs.shape)] = np.inf
    return costs


@kernel
def _costs_kernel(
    begin: int,
    end: int,
    symbols: Array,
    involved: Array,
    weights: Array,
    sets: Array,
    ranks: Array,
    first: Array,
    count: Array,
    start: Array,
    bits: Array,
    escape: Array,
    costs: Array,
) -> None:
    """Tokens ``begin..end-1``; the sum over coefficients does not depend on how tokens are shared out."""
    _, modes, choices = costs.shape
    for row in range(0, symbols.shape[0], SAMPLED):
        of_row = symbols[row]
        for token in range(begin, end):
            if row >= ranks[token]:
                continue
            own, one, other = of_row[involved[token, 0]], of_row[involved[token, 1]], of_row[involved[token, 2]]
            for mode in range(modes):
                predicted = weighted(weights[token, mode, 0], one, weights[token, mode, 1], other)
                index = own - predicted + VALUE_OFFSET
                for choice in range(choices):
                    table = sets[token, choice]
                    if table >= 0:
                        at = index - first[table, row]
                        if 0 <= at < count[table, row]:
                            costs[token, mode, choice] += bits[start[table, row] + at]
                        else:
                            costs[token, mode, choice] += escape[table, row]
