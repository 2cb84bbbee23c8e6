"""Whether the machine was steady: if not, requests of one run share its mood, and only runs are independent."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import fmean, median

from scipy import stats

from testbed.compare.pairs import Cluster

# A steady machine is called unsteady once in a hundred comparisons.
_ALPHA = 0.01
_LEAST_VALUES = 3

# a pair of runs, and which half of it
_Half = tuple[int, int]


@dataclass(frozen=True)
class Wander:
    """A change in TTFT that went up and down as the runs went on: lowest and highest of its medians by half run."""

    low: float
    high: float


def find_wander(methods: Sequence[Sequence[Cluster]], margin: float) -> Wander | None:
    """The wander of a scenario's change, or None where it was steady enough.

    Places of the trace come in random order, so what the code does to them is spread over a run evenly; a change that
    goes with the time of measurement is the machine's. Halves of runs are compared by a Kruskal-Wallis test (W. H.
    Kruskal and W. A. Wallis, JASA 47, 1952) on the logarithms of TTFT ratios, each less its method's median.

    Parameters
    ----------
    methods : sequence of sequence of Cluster
        Of one scenario, by method. Pairs of one cluster in one half of a run count once, by their mean.
    margin : float
        Smallest change of TTFT that matters, as a share: medians nearer to each other harm no verdict.
    """
    halves: dict[_Half, list[float]] = {}
    for clusters in methods:
        ratios = [found for cluster in clusters for found in _ratios(cluster).items()]
        centre = median(ratio for _, ratio in ratios) if ratios else 0.0
        for half, ratio in ratios:
            halves.setdefault(half, []).append(ratio - centre)
    groups = [values for values in halves.values() if len(values) >= _LEAST_VALUES]
    medians = [median(values) for values in groups]
    if len(groups) < 2 or max(medians) - min(medians) < math.log1p(margin):
        return None
    if stats.kruskal(*groups).pvalue >= _ALPHA:
        return None
    return Wander(math.expm1(min(medians)), math.expm1(max(medians)))


def by_turn(clusters: Sequence[Cluster]) -> list[Cluster]:
    """The same pairs, clustered by the pair of runs that they are from."""
    pairs = sorted((pair for cluster in clusters for pair in cluster), key=lambda pair: pair.turn)
    return [tuple(of_turn) for _, of_turn in groupby(pairs, key=lambda pair: pair.turn)]


def _ratios(cluster: Cluster) -> dict[_Half, float]:
    """Mean logarithm of the TTFT ratio in each half run: requests of one batch share its mood."""
    found: dict[_Half, list[float]] = {}
    for pair in cluster:
        if pair.base.ttft_ms is not None and pair.new.ttft_ms is not None:
            found.setdefault((pair.turn, pair.half), []).append(math.log(pair.new.ttft_ms / pair.base.ttft_ms))
    return {half: fmean(ratios) for half, ratios in found.items()}
