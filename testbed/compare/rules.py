"""The rules: from measures to verdicts. docs/compare.md states them with their sources and error rates."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from scipy import special

from testbed.compare.measures import EQUIVALENCE_CONFIDENCE, Measure
from testbed.paired import holm
from testbed.stats import CONFIDENCE

ALPHA = 1 - CONFIDENCE
# the chance of a verdict that "pairs needed" aims at
POWER = 0.8


class Verdict(StrEnum):
    """What a comparison says of a measure, of a method, and of the whole."""

    REGRESSED = "REGRESSED"
    INCONCLUSIVE = "INCONCLUSIVE"
    IMPROVED = "IMPROVED"
    EQUIVALENT = "EQUIVALENT"


@dataclass(frozen=True)
class Finding:
    """A measure with what was decided on it.

    Parameters
    ----------
    adjusted_p : float or None
        By Holm over all tests of the comparison; None where figures are exact.
    more_clusters : int
        How many further clusters a verdict needs, about; 0 if there is one.
    """

    measure: Measure
    adjusted_p: float | None
    verdict: Verdict
    more_clusters: int


def decide(measures: Sequence[Measure]) -> list[Finding]:
    """Verdicts of all measures of a comparison together, so that many tests do not raise more false alarms than one."""
    tested = [measure.p_value for measure in measures if measure.p_value is not None]
    adjusted = iter(holm(tested))
    findings = []
    for measure in measures:
        p_value = None if measure.p_value is None else next(adjusted)
        verdict = _verdict(measure, p_value)
        more = _more_clusters(measure, len(tested)) if verdict is Verdict.INCONCLUSIVE else 0
        findings.append(Finding(measure, p_value, verdict, more))
    return findings


def verdict_of_method(findings: Sequence[Finding]) -> Verdict:
    """Worse in one measure is worse; better in one, and worse in none, is better; alike needs all to be alike.

    A method of which no request came to a first token on either side is never called equivalent.
    """
    found = {finding.verdict for finding in findings}
    for verdict in (Verdict.REGRESSED, Verdict.IMPROVED):
        if verdict in found:
            return verdict
    has_ttft = any(finding.measure.name == "ttft" for finding in findings)
    return Verdict.EQUIVALENT if has_ttft and found == {Verdict.EQUIVALENT} else Verdict.INCONCLUSIVE


def verdict_of_all(verdicts: Iterable[Verdict]) -> Verdict:
    """The one that asks most of the reader: the order of ``Verdict``."""
    found = set(verdicts)
    return next(verdict for verdict in Verdict if verdict in found)


def _verdict(measure: Measure, adjusted_p: float | None) -> Verdict:
    is_large = abs(measure.change) >= measure.margin
    direction = Verdict.REGRESSED if measure.worse_sign * measure.change > 0 else Verdict.IMPROVED
    if adjusted_p is None or measure.equivalence_interval is None:
        return direction if is_large else Verdict.EQUIVALENT
    if is_large and adjusted_p <= ALPHA:
        return direction
    low, high = measure.equivalence_interval
    return Verdict.EQUIVALENT if -measure.margin < low and high < measure.margin else Verdict.INCONCLUSIVE


def _more_clusters(measure: Measure, tests: int) -> int:
    """Further clusters for a verdict in 4 of 5 cases, if they scatter as those that are there.

    A change that is large so far is taken to be real, and has to become significant; a small one is taken to be none,
    and its interval has to fit into the margin.
    """
    if abs(measure.change) >= measure.margin:
        z = _normal_tail(ALPHA / tests / 2) + _normal_tail(1 - POWER)
        needed = z * z * measure.variance / measure.change**2
    else:
        z = _normal_tail((1 - EQUIVALENCE_CONFIDENCE) / 2) + _normal_tail((1 - POWER) / 2)
        needed = z * z * measure.variance / measure.margin**2 + _pairs_without_violation(measure)
    # with fewer, no outcome is significant
    needed = max(needed, math.log2(2 * tests / ALPHA))
    return max(1, math.ceil(needed) - measure.clusters)


def _pairs_without_violation(measure: Measure) -> float:
    """Pairs whose interval fits into the margin when not one is discordant."""
    if measure.name != "violations":
        return 0.0
    z = _normal_tail((1 - EQUIVALENCE_CONFIDENCE) / 2)
    return z * z * (1 / measure.margin - 1)


def _normal_tail(share: float) -> float:
    """How many standard deviations a share of a normal distribution lies beyond."""
    return -float(special.ndtri(share))
