"""The throughput estimators by name."""

from collections.abc import Callable

from cachegen.errors import UnknownNameError
from cachegen.estimators.base import ThroughputEstimator
from cachegen.estimators.harmonic_mean import HarmonicMeanEstimator
from cachegen.estimators.last_chunk import LastChunkEstimator
from cachegen.estimators.two_speed import TwoSpeedEstimator

__all__ = ["ESTIMATORS", "ThroughputEstimator", "make_estimator"]

ESTIMATORS: dict[str, Callable[[], ThroughputEstimator]] = {
    kind.name: kind for kind in (LastChunkEstimator, HarmonicMeanEstimator, TwoSpeedEstimator)
}


def make_estimator(name: str) -> ThroughputEstimator:
    """Make the estimator of that name.

    Raises
    ------
    UnknownNameError
        There is none; the text lists those there are.
    """
    if name not in ESTIMATORS:
        raise UnknownNameError(f"no throughput estimator {name!r}; there are {', '.join(ESTIMATORS)}")
    return ESTIMATORS[name]()
