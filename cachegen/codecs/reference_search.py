"""Find which earlier tokens of a chunk each is best predicted from, and which tables code what is left."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import numpy.typing as npt
import torch

from cachegen.codecs.streams import fixed_bytes
from cachegen.codecs.token_groups import Places
from cachegen.codecs.token_references import MODE_WEIGHTS, TABLE_OFFSETS, TokenReferences, step_ratios
from cachegen.codecs.transform_tables import TransformTables, stream_coefficients
from cachegen.codecs.units import Unit
from cachegen.kernels.prediction import PREDICTED_LARGEST
from cachegen.kernels.symbol_costs import cost_tables, token_costs
from cachegen.kernels.uniform import GRID_STEPS

# Of a step: coefficients of less than that say little of how alike two tokens are.
_NOISE = 0.3
# Tokens compared at one time, and how far back: 9 MB.
_BLOCK_TOKENS, _LOOK_BACK = 512, 4096
# Of the number that says how long a stream is.
_LENGTH_BYTES = 4
_SUBSETS = [list(some) for size in (1, 2, 3) for some in combinations(range(len(TABLE_OFFSETS)), size)]
_TAPS = MODE_WEIGHTS > 0

I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]
F32 = npt.NDArray[np.float32]


def choose_references(symbols: Sequence[I32], transform: TransformTables, places: Places) -> TokenReferences:
    """References that cost the fewest bits, of those that are most alike.

    Parameters
    ----------
    symbols : sequence of int32 arrays, ``(rank, coded tokens)``
        Of each unit, tokens as they stand in the chunk.
    places : int8 array, ``(coded tokens,)``
        Of each token's step in the grid.
    """
    alike = _most_alike(symbols, places)
    own = np.arange(len(places))
    modes, offsets = [], []
    for unit, of_unit in zip(transform.units, symbols, strict=True):
        of_modes, of_offsets = _choose(_costs(of_unit, transform, unit, places, alike), transform, unit, places)
        modes.append(of_modes)
        offsets.append(of_offsets)
    # where no unit takes anything of it, a token names itself
    first, second = (np.where(_TAPS[modes][..., tap].any(axis=0), alike[tap], own) for tap in (0, 1))
    return TokenReferences(first, second, np.stack(modes), np.stack(offsets))


def _most_alike(symbols: Sequence[I32], places: Places) -> tuple[I64, I64]:
    """The two earlier tokens whose multiples leave least of each token; itself where none does."""
    steps = np.asarray(GRID_STEPS, dtype=np.float32)[places]
    fits = np.logical_and.reduce([np.abs(of_unit).max(axis=0) <= PREDICTED_LARGEST for of_unit in symbols])
    z = [
        torch.from_numpy(_weighted(of_unit.astype(np.float32) * (steps * fits), float(steps.min())))
        for of_unit in symbols
    ]
    sizes = torch.stack([of_unit.square().sum(dim=0) for of_unit in z]).sum(dim=0)
    found = []
    for begin in range(0, len(places), _BLOCK_TOKENS):
        end = min(begin + _BLOCK_TOKENS, len(places))
        back = max(0, begin - _LOOK_BACK)
        products = torch.zeros(end - begin, end - back, dtype=torch.float32, device="cpu")
        for of_unit in z:
            products.addmm_(of_unit[:, begin:end].T, of_unit[:, back:end])
        # what of a token's size its projection on an earlier one takes away
        less = products.clamp_min(0).square() / sizes[back:end].clamp_min(torch.finfo(torch.float32).tiny)
        gains, at = less.tril(begin - back - 1).topk(min(2, end - back), dim=1)
        own = torch.arange(begin, end, device="cpu")[:, None]
        found.append(torch.where(gains > 0, at + back, own).expand(-1, 2))
    first, second = torch.cat(found).T.numpy()
    return first, second


def _weighted(values: F32, step: float) -> F32:
    """Coefficients ``(rank, tokens)``, each relative to its size in the chunk."""
    size = np.sqrt(np.square(values).mean(axis=1, keepdims=True))
    weighted: F32 = values / (size + _NOISE * step)
    return weighted


def _costs(symbols: I32, transform: TransformTables, unit: Unit, places: Places, alike: tuple[I64, I64]) -> F32:
    """Bits of each token in a unit, in each mode with each of the tables, ``(tokens, modes, offsets)``."""
    involved = np.stack([np.arange(len(places)), *alike], axis=1)
    lowest = max(0, int(places.min()) + TABLE_OFFSETS[0])
    table_places = range(lowest, min(len(GRID_STEPS), int(places.max()) + TABLE_OFFSETS[-1] + 1))
    ranks = transform.ranks[places, unit.index].astype(np.int64)
    sets = places[:, None] + np.array(TABLE_OFFSETS) - lowest
    sets[sets >= len(table_places)] = -1
    of_places = [
        transform.tables_of(unit, place, 0, int(transform.table_ranks(place)[unit.index])) for place in table_places
    ]
    weights = (step_ratios(places, involved)[:, None] * MODE_WEIGHTS).astype(np.int32)
    costs = token_costs(symbols, involved, weights, sets, ranks, cost_tables(of_places))
    for tap, reference in enumerate(alike):
        nothing_there = reference == involved[:, 0]
        costs[np.ix_(nothing_there, _TAPS[:, tap])] = np.inf
    return costs


def _choose(costs: F32, transform: TransformTables, unit: Unit, places: Places) -> tuple[I64, I64]:
    """Mode and offset of each token, so that streams of few tokens do not cost more than they save."""
    modes, offsets = (np.zeros(len(places), dtype=np.int64) for _ in range(2))
    for place in np.unique(places):
        tokens = np.flatnonzero(places == place)
        rank = int(transform.ranks[place, unit.index])
        best = costs[tokens].min(axis=1)
        sums = [_subset_bits(best[:, subset], rank) for subset in _SUBSETS]
        subset = _SUBSETS[int(np.argmin(sums))]
        offset = np.array(subset)[best[:, subset].argmin(axis=1)]
        offsets[tokens] = np.array(TABLE_OFFSETS)[offset]
        modes[tokens] = costs[tokens, :, offset].argmin(axis=1)
    return modes, offsets


def _subset_bits(best: F32, rank: int) -> float:
    """Bits of tokens that have the best of some tables, ``(tokens, tables)``, streams' own bytes included."""
    total = float(best.min(axis=1).astype(np.float64).sum())
    for count in np.bincount(best.argmin(axis=1), minlength=best.shape[1]):
        if count:
            size = min(rank, stream_coefficients(int(count)))
            total += 8 * -(-rank // size) * (_LENGTH_BYTES + fixed_bytes(size * int(count)))
    return total
