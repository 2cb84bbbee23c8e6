"""Intervals for one sample: of a share, of a percentile, of a mean. None stands for a bound that the sample lacks."""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy import stats

CONFIDENCE = 0.95
RESAMPLES = 1_999
SEED = 20_241_129
# Resampling fewer values only shows those few again.
LEAST_RESAMPLED = 6

Interval = tuple[float | None, float | None]
NO_INTERVAL: Interval = (None, None)


def wilson_interval(count: int, total: int) -> Interval:
    """Wilson's score interval of a share (E. B. Wilson, JASA 22, 1927): within 0 and 1, and none of width zero."""
    found = stats.binomtest(count, total).proportion_ci(CONFIDENCE, method="wilson")
    return (float(found.low), float(found.high))


def percentile_interval(values: Sequence[float], share: float) -> Interval:
    """Interval of a percentile between two of the values, free of any distribution (order statistics).

    The number of values below the true percentile is binomial. A sample too small for a bound has none: five values say
    nothing of how large the 99th percentile may be.
    """
    ordered = sorted(values)
    tail = (1 - CONFIDENCE) / 2
    # P(the k-th smallest exceeds the percentile) = P(fewer than k values lie below it)
    below = int(stats.binom.ppf(tail, len(ordered), share))
    above = int(stats.binom.isf(tail, len(ordered), share)) + 1
    return (
        ordered[below - 1] if below >= 1 else None,
        ordered[above - 1] if above <= len(ordered) else None,
    )


def mean_interval(values: Sequence[float]) -> Interval:
    """Percentile bootstrap of a mean (B. Efron, Ann. Statist. 7, 1979), seeded: the same values, the same interval."""
    if len(values) < LEAST_RESAMPLED:
        return NO_INTERVAL
    found = stats.bootstrap(
        (np.asarray(values, dtype=float),),
        np.mean,
        n_resamples=RESAMPLES,
        confidence_level=CONFIDENCE,
        method="percentile",
        rng=np.random.default_rng(SEED),
    ).confidence_interval
    return (float(found.low), float(found.high))


def percentile_ratio(
    base: Sequence[Sequence[float]], new: Sequence[Sequence[float]], share: float
) -> tuple[float, Interval]:
    """Ratio of a percentile of NEW to that of BASE, with its paired percentile bootstrap over clusters, seeded.

    Parameters
    ----------
    base, new : sequence of sequence of float
        Positive values by cluster; cluster ``i`` of both sides is drawn together.
    share : float
        Which percentile, between 0 and 1.
    """
    of_base, of_new = _Resampled(base), _Resampled(new)
    whole = np.ones(len(base), dtype=np.int64)
    ratio = of_new.percentile(whole, share) / of_base.percentile(whole, share)
    # a percentile that no value lies beyond cannot be resampled
    if len(base) < LEAST_RESAMPLED or len(base) * min(share, 1 - share) < 1:
        return ratio, NO_INTERVAL
    rng = np.random.default_rng(SEED)
    ratios = []
    for _ in range(RESAMPLES):
        drawn = np.bincount(rng.integers(len(base), size=len(base)), minlength=len(base))
        ratios.append(of_new.percentile(drawn, share) / of_base.percentile(drawn, share))
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(ratios, [tail, 1 - tail])
    return ratio, (float(low), float(high))


class _Resampled:
    """Values sorted once: a resample is then a weight for each of them."""

    def __init__(self, clusters: Sequence[Sequence[float]]) -> None:
        values = np.array([value for cluster in clusters for value in cluster])
        owners = np.repeat(np.arange(len(clusters)), [len(cluster) for cluster in clusters])
        order = np.argsort(values, kind="stable")
        self._values, self._owners = values[order], owners[order]

    def percentile(self, drawn: npt.NDArray[np.int64], share: float) -> float:
        """Nearest rank among the values of clusters that were each drawn so many times."""
        ranks = np.cumsum(drawn[self._owners])
        return float(self._values[np.searchsorted(ranks, math.ceil(share * ranks[-1]))])
