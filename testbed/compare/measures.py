"""The paired measures of one method: violations, TTFT and agreement, each with its change, interval and test."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

import numpy as np

from testbed.compare.pairs import Cluster, Pair
from testbed.metrics import RequestRow
from testbed.paired import Bounds, Discordance, SubsetMeans, sign_flip_p
from testbed.stats import CONFIDENCE

# Two one-sided tests of 5 % are an interval of 90 % (D. J. Schuirmann, J. Pharmacokinet. Biopharm. 15, 1987).
EQUIVALENCE_CONFIDENCE = 2 * CONFIDENCE - 1


@dataclass(frozen=True)
class Margins:
    """The smallest changes that matter.

    Parameters
    ----------
    violations, agreement : float
        Change of a share: 0.02 is two percentage points.
    ttft : float
        Relative change of TTFT: 0.05 is five per cent.
    """

    violations: float = 0.02
    ttft: float = 0.05
    agreement: float = 0.01


@dataclass(frozen=True, kw_only=True)
class Measure:
    """One measure of one method, before anything is decided.

    Parameters
    ----------
    name : str
        ``violations``, ``ttft`` or ``agreement``.
    base, new : float
        Of each side: violation rate, geometric mean of TTFT in ms, mean agreement.
    change : float
        NEW against BASE: a difference of shares; of TTFT the logarithm of the ratio.
    worse_sign : int
        1 where a larger value is worse, else -1.
    margin : float
        Smallest change that matters, on the scale of ``change``.
    clusters : int
        Places of the trace, or batches, that say something of it.
    p_value : float or None
        That nothing changed, two-sided. None, as the intervals, where the figures are exact.
    interval, equivalence_interval : tuple of float or None
        Of the change, at 95 % and 90 %.
    variance : float
        Of one cluster's difference, to plan further requests with.
    counts : dict
        What the test rests on.
    """

    name: str
    base: float
    new: float
    change: float
    worse_sign: int
    margin: float
    clusters: int
    p_value: float | None = None
    interval: Bounds | None = None
    equivalence_interval: Bounds | None = None
    variance: float = 0.0
    counts: Mapping[str, int] = field(default_factory=dict)


def measure_all(
    clusters: Sequence[Cluster], margins: Margins, request_timeout_ms: float, is_exact: bool
) -> list[Measure]:
    """Measures that the pairs support: without any first token there is no TTFT, without quality no agreement."""
    found = [
        _violations(clusters, margins.violations, is_exact),
        _ttft(clusters, math.log1p(margins.ttft), request_timeout_ms, is_exact),
        _agreement(clusters, margins.agreement, is_exact),
    ]
    return [measure for measure in found if measure is not None]


def waited_ms(row: RequestRow, request_timeout_ms: float) -> float:
    """TTFT, and of a request without a first token the time after which a request is given up."""
    return request_timeout_ms if row.ttft_ms is None else row.ttft_ms


def with_first_token(clusters: Sequence[Cluster]) -> list[Cluster]:
    """The pairs of which one side at least came to a first token; of the others nothing is known but the violation."""
    return _where(clusters, lambda pair: pair.base.ttft_ms is not None or pair.new.ttft_ms is not None)


def _violations(clusters: Sequence[Cluster], margin: float, is_exact: bool) -> Measure:
    found = Discordance([[pair.new.violation - pair.base.violation for pair in cluster] for cluster in clusters])
    pairs = [pair for cluster in clusters for pair in cluster]
    discordant = found.new_only + found.base_only
    return Measure(
        name="violations",
        base=sum(pair.base.violation for pair in pairs) / len(pairs),
        new=sum(pair.new.violation for pair in pairs) / len(pairs),
        change=found.change,
        worse_sign=1,
        margin=margin,
        clusters=len(clusters),
        p_value=None if is_exact else sign_flip_p([sum(cluster) for cluster in found.clusters]),
        interval=None if is_exact else found.interval(CONFIDENCE),
        equivalence_interval=None if is_exact else found.interval(EQUIVALENCE_CONFIDENCE),
        variance=discordant / found.pairs * len(clusters) / found.effective_pairs(),
        counts={"new_only": found.new_only, "base_only": found.base_only},
    )


def _ttft(clusters: Sequence[Cluster], margin: float, request_timeout_ms: float, is_exact: bool) -> Measure | None:
    known = with_first_token(clusters)
    if not known:
        return None
    logs = [
        [
            (math.log(waited_ms(pair.base, request_timeout_ms)), math.log(waited_ms(pair.new, request_timeout_ms)))
            for pair in cluster
        ]
        for cluster in known
    ]
    base, new = _side_means(logs)
    return _continuous("ttft", logs, margin, 1, is_exact, base=math.exp(base), new=math.exp(new))


def _agreement(clusters: Sequence[Cluster], margin: float, is_exact: bool) -> Measure | None:
    shares = [
        [
            (pair.base.agreement, pair.new.agreement)
            for pair in cluster
            if pair.base.agreement is not None and pair.new.agreement is not None
        ]
        for cluster in clusters
    ]
    known = [cluster for cluster in shares if cluster]
    if not known:
        return None
    base, new = _side_means(known)
    return _continuous("agreement", known, margin, -1, is_exact, base=base, new=new)


def _continuous(
    name: str,
    clusters: Sequence[Sequence[tuple[float, float]]],
    margin: float,
    worse_sign: int,
    is_exact: bool,
    *,
    base: float,
    new: float,
) -> Measure:
    differences = [fmean(new - base for base, new in cluster) for cluster in clusters]
    means = None if is_exact else SubsetMeans(differences)
    return Measure(
        name=name,
        base=base,
        new=new,
        change=fmean(differences),
        worse_sign=worse_sign,
        margin=margin,
        clusters=len(clusters),
        p_value=None if means is None else means.p_value(),
        interval=None if means is None else means.interval(CONFIDENCE),
        equivalence_interval=None if means is None else means.interval(EQUIVALENCE_CONFIDENCE),
        variance=float(np.var(differences, ddof=1)) if len(differences) > 1 else 0.0,
    )


def _side_means(clusters: Sequence[Sequence[tuple[float, float]]]) -> tuple[float, float]:
    """Mean of each side; every cluster weighs the same, as in the change."""
    base, new = (fmean(fmean(pair[side] for pair in cluster) for cluster in clusters) for side in (0, 1))
    return base, new


def _where(clusters: Sequence[Cluster], holds: Callable[[Pair], bool]) -> list[Cluster]:
    kept = [tuple(pair for pair in cluster if holds(pair)) for cluster in clusters]
    return [cluster for cluster in kept if cluster]
