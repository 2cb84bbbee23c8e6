"""Tests and intervals for paired differences in clusters, on one idea: if nothing changed, signs are coin flips.

Under A/A the two sides of a cluster (all pairs at one place of the trace) are exchangeable, so the sign of its
difference is a fair coin. That makes the test exact for any number of clusters and any distribution, and a sample too
small to conclude anything from is unable to: with five clusters no p-value is below 1/16.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from scipy import optimize, special

from testbed.stats import SEED

# Beyond so many clusters (2^13 sign patterns), patterns are drawn at random.
_ENUMERATED_CLUSTERS = 13
_DRAWS = 9_999
_BATCH_CELLS = 2**22

Bounds = tuple[float, float]


def sign_flip_p(differences: Sequence[int]) -> float:
    """Two-sided p of a sum of whole numbers when each has a random sign: exact, by convolution.

    With one pair a cluster the differences are -1, 0 and 1, and this is McNemar's exact test (Q. McNemar, Psychometrika
    12, 1947): a binomial test on the discordant pairs.
    """
    sizes = [abs(difference) for difference in differences if difference]
    chances = np.ones(1)
    for size in sizes:
        step = np.zeros(2 * size + 1)
        step[[0, -1]] = 0.5
        chances = np.convolve(chances, step)
    # index i is the sum i - sum(sizes)
    found = abs(sum(differences))
    tail = float(chances[sum(sizes) + found :].sum())
    return min(1.0, 2 * tail) if sizes else 1.0


class SubsetMeans:
    """Interval and test of the centre of cluster differences, from the means of random subsets of them.

    Each non-empty subset of the clusters gives a mean; the centre of a symmetric distribution lies between any two
    neighbours of these means equally often (J. A. Hartigan, JASA 64, 1969). It is what inverting the sign flips of the
    mean gives, so test and interval never disagree. All subsets are taken up to 13 clusters, 9,999 seeded ones beyond.

    Parameters
    ----------
    differences : sequence of float
        One a cluster, finite.
    """

    def __init__(self, differences: Sequence[float]) -> None:
        values = np.asarray(differences, dtype=float)
        self._means = np.sort(_all_subset_means(values) if len(values) <= _ENUMERATED_CLUSTERS else _drawn(values))

    def interval(self, confidence: float) -> Bounds:
        """Equal-tailed interval; a bound that there are too few clusters for is infinite."""
        cut = math.floor((1 - confidence) / 2 * (len(self._means) + 1) + 1e-9)
        if cut < 1:
            return (-math.inf, math.inf)
        return (float(self._means[cut - 1]), float(self._means[-cut]))

    def p_value(self) -> float:
        """Two-sided p of a centre of zero."""
        total = len(self._means) + 1
        below = (np.count_nonzero(self._means <= 0) + 1) / total
        above = (np.count_nonzero(self._means >= 0) + 1) / total
        return float(min(1.0, 2 * min(below, above)))


def _all_subset_means(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    numbers = np.arange(1, 2 ** len(values))
    chosen = (numbers[:, None] >> np.arange(len(values))) & 1
    return np.asarray(chosen @ values / np.maximum(chosen.sum(axis=1), 1))


def _drawn(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    rows = max(1, _BATCH_CELLS // len(values))
    batches = (_shares(len(values), start, min(rows, _DRAWS - start)) for start in range(0, _DRAWS, rows))
    return np.concatenate([shares @ values for shares in batches])


@lru_cache(maxsize=2)
def _shares(clusters: int, start: int, rows: int) -> npt.NDArray[np.float64]:
    """What each cluster counts in the mean of each drawn subset: the same subsets for every method and measure."""
    rng = np.random.default_rng([SEED, start])
    coins = rng.integers(256, size=(rows, -(-clusters // 8)), dtype=np.uint8)
    chosen = np.unpackbits(coins, axis=1, count=clusters).astype(float)
    sizes = chosen.sum(axis=1, keepdims=True)
    # the empty subset has no mean; it comes once in 2^14 draws at the most, and counts as the whole
    return np.where(sizes > 0, chosen, 1.0) / np.where(sizes > 0, sizes, clusters)


@dataclass(frozen=True)
class Discordance:
    """Violations that one side alone has.

    Parameters
    ----------
    clusters : sequence of sequence of int
        By cluster, for each pair: 1 if NEW alone violated, -1 if BASE alone, 0 if both or neither.
    """

    clusters: Sequence[Sequence[int]]

    @property
    def pairs(self) -> int:
        """Number of pairs."""
        return sum(len(cluster) for cluster in self.clusters)

    @property
    def new_only(self) -> int:
        """Pairs in which NEW alone violated."""
        return sum(difference == 1 for cluster in self.clusters for difference in cluster)

    @property
    def base_only(self) -> int:
        """Pairs in which BASE alone violated."""
        return sum(difference == -1 for cluster in self.clusters for difference in cluster)

    @property
    def change(self) -> float:
        """Violation rate of NEW minus that of BASE."""
        return (self.new_only - self.base_only) / self.pairs

    def effective_pairs(self) -> float:
        """How many independent pairs the sample is worth: between the number of clusters and that of pairs.

        Pairs of one cluster share their stretch of the trace, so repeating them tells less than new places would. The
        design effect (L. Kish, Survey Sampling, 1965) is the variance of the change over clusters, against that of
        as many independent pairs; where no pair is discordant there is nothing to estimate it from, and a cluster
        counts once.
        """
        sizes = np.array([len(cluster) for cluster in self.clusters])
        sums = np.array([sum(cluster) for cluster in self.clusters])
        spread = (self.new_only + self.base_only) / self.pairs - self.change**2
        if spread <= 0 or len(sizes) < 2:
            return float(len(sizes))
        residual = sums - self.change * sizes
        effect = float((residual**2).sum()) / (spread * self.pairs) * len(sizes) / (len(sizes) - 1)
        return float(np.clip(self.pairs / effect if effect > 0 else self.pairs, len(sizes), self.pairs))

    def interval(self, confidence: float) -> Bounds:
        """Score interval of the change (T. Tango, Statist. Med. 17, 1998), on the effective number of pairs."""
        pairs = self.effective_pairs()
        share = pairs / self.pairs
        z = -float(special.ndtri((1 - confidence) / 2))
        return (
            -_upper_bound(share * self.base_only, share * self.new_only, pairs, z),
            _upper_bound(share * self.new_only, share * self.base_only, pairs, z),
        )


def _upper_bound(gained: float, lost: float, pairs: float, z: float) -> float:
    """Largest change that the score test does not reject, ``gained - lost`` of ``pairs`` having been seen."""

    def excess(change: float) -> float:
        b = -gained - lost + (2 * pairs - gained + lost) * change
        c = -lost * change * (1 - change)
        # share of pairs lost, by maximum likelihood under this change
        lost_share = (math.sqrt(max(0.0, b * b - 8 * pairs * c)) - b) / (4 * pairs)
        variance = pairs * max(0.0, 2 * lost_share + change * (1 - change))
        return (gained - lost - pairs * change) + z * math.sqrt(variance)

    seen = (gained - lost) / pairs
    if excess(1.0) >= 0:
        return 1.0
    # what was seen is never rejected; where its own variance is zero it would be a root too
    return float(optimize.brentq(excess, seen + 1e-9, 1.0))


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's adjusted p-values (Scand. J. Statist. 6, 1979): below alpha, all those stand together at level alpha."""
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for place, index in enumerate(sorted(range(len(p_values)), key=lambda index: p_values[index])):
        largest = max(largest, min(1.0, (len(p_values) - place) * p_values[index]))
        adjusted[index] = largest
    return adjusted
