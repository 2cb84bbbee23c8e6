"""What an objective makes of requests: classes of violation, attainment, goodput, and what could have been met."""

from collections.abc import Sequence
from typing import Any, Protocol

from testbed.stats import wilson_interval

# How a request can miss its objective. All but the first are statuses of a request without a first token.
VIOLATION_CLASSES = ("late", "failed", "timed_out", "aborted")
# Objectives at which attainment is reported, as multiples of the configured one.
SLO_SCALES = (0.25, 0.5, 0.75, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 3.0, 4.0)


class Outcome(Protocol):
    """What became of one request: the part of a ``RequestRow`` that an objective looks at."""

    @property
    def status(self) -> str:
        """``ok``, or one of ``VIOLATION_CLASSES`` but ``late``."""

    @property
    def ttft_ms(self) -> float | None:
        """Time to first token; None unless ``ok``."""

    @property
    def slo_ms(self) -> float:
        """The objective."""

    @property
    def bytes(self) -> int:
        """Received from the store."""

    @property
    def batch(self) -> int:
        """Requests of one batch were served side by side."""

    @property
    def arrival_s(self) -> float:
        """Since the batch's beginning."""

    @property
    def ended_s(self) -> float:
        """When it had its first token or was given up; 0 where that was not recorded."""

    @property
    def oracle_ttft_ms(self) -> float | None:
        """Least TTFT of any rule that knows the trace; None where nobody worked it out."""


def meets(outcome: Outcome, slo_ms: float) -> bool:
    """Whether a request had its first token within an objective; exactly in time meets it."""
    return outcome.ttft_ms is not None and outcome.ttft_ms <= slo_ms


def violation_class(outcome: Outcome) -> str | None:
    """Which of ``VIOLATION_CLASSES`` a request is in; None if it met its objective."""
    if meets(outcome, outcome.slo_ms):
        return None
    return "late" if outcome.ttft_ms is not None else outcome.status


def count_violations(outcomes: Sequence[Outcome]) -> dict[str, int]:
    """Violations by class; every class is there, so that a reader need not know which can be absent."""
    found = [violation_class(outcome) for outcome in outcomes]
    return {name: found.count(name) for name in VIOLATION_CLASSES}


def attainment_sweep(outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    """Share of the issued requests that met each multiple of their own objective, with its 95 % Wilson interval.

    A controller that aims at the configured objective would act differently under another: away from scale 1 this says
    what the same run would have scored, not what a run with that objective would score.
    """
    sweep = []
    for scale in SLO_SCALES:
        met = sum(meets(outcome, scale * outcome.slo_ms) for outcome in outcomes)
        sweep.append(
            {
                "scale": scale,
                "attainment": met / len(outcomes),
                "interval": list(wilson_interval(met, len(outcomes))),
            }
        )
    return sweep


def goodput(outcomes: Sequence[Outcome]) -> dict[str, float | None]:
    """Requests that met their objective, and the bytes they fetched, for each second spent serving.

    A batch is served from its first arrival to its last end. Both figures are None where that is not known.
    """
    served_s = 0.0
    for batch in {outcome.batch for outcome in outcomes}:
        members = [outcome for outcome in outcomes if outcome.batch == batch]
        served_s += max(outcome.ended_s for outcome in members) - min(outcome.arrival_s for outcome in members)
    if served_s <= 0:
        return {"requests_per_s": None, "bytes_per_s": None}
    good = [outcome for outcome in outcomes if meets(outcome, outcome.slo_ms)]
    return {
        "requests_per_s": len(good) / served_s,
        "bytes_per_s": sum(outcome.bytes for outcome in good) / served_s,
    }


def split_by_oracle(outcomes: Sequence[Outcome]) -> dict[str, int] | None:
    """Violations that a rule with knowledge of the trace would have avoided, and those that no rule could.

    Returns
    -------
    dict or None
        ``avoidable`` and ``infeasible``, which sum to the violations; None where the oracle's TTFT of one is unknown.
    """
    split = {"avoidable": 0, "infeasible": 0}
    for outcome in outcomes:
        if meets(outcome, outcome.slo_ms):
            continue
        if outcome.oracle_ttft_ms is None:
            return None
        split["avoidable" if outcome.oracle_ttft_ms <= outcome.slo_ms else "infeasible"] += 1
    return split
