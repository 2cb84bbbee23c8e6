"""Judge an emulated link by what it did: was the run on the link that the trace describes?"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from testbed.link_account import LinkRow, excess_s, link_rows
from testbed.replay import ReplayLog
from testbed.sampler import LinkSamples

BUSY_SECOND_S = 1.0
LEAST_BUSY_S = 0.5  # less busy time says nothing about a rate
# Having carried this much of the replays' capacity, over this time at the least, a link that never had a queue had no
# shaper. (A single short transfer fills half of a short replay and builds its queue only after slow start.)
LEAST_LOAD_SHARE = 0.5
LEAST_REPLAY_S = 5.0


@dataclass(frozen=True)
class FidelityLimits:
    """What a run may deviate and still be called valid."""

    rate_error_mean: float = 0.02
    rate_error_p95: float = 0.05
    excess_s: float = 0.02
    rtt_error_ms: float = 2.0
    step_late_p99_ms: float = 10.0
    frame_late_p99_ms: float = 10.0
    # a delay node that stood still: too few frames to move a percentile, yet a request waited for them
    frame_late_max_ms: float = 50.0
    unexplained_drops: int = 0


@dataclass(frozen=True)
class LinkSummary:
    """How the link behaved over all replays of a run.

    Parameters
    ----------
    replays : int
        How many replays were looked at.
    replay_s : float
        Their length together.
    busy_s : float
        Time in which a queue stood in front of the link.
    rate_errors : tuple of float
        How far delivered / capacity is from 1, for each second of busy time in order; a rest of half a second
        counts too.
    excess_s : float
        Worst surplus in any window of any replay, as time at the peak rate (:func:`link_account.excess_s`).
    step_late_p50_ms, step_late_p99_ms : float
        How much later than planned the replay's steps came into force.
    queue_drops : int
        Packets refused by a full queue: the congestion that the link is meant to show.
    capacity_bytes, delivered_bytes : float
        Sums over all replays, busy or not.
    """

    replays: int
    replay_s: float
    busy_s: float
    rate_errors: tuple[float, ...]
    excess_s: float
    step_late_p50_ms: float
    step_late_p99_ms: float
    queue_drops: int
    capacity_bytes: float
    delivered_bytes: float

    @property
    def rate_error_mean(self) -> float | None:
        """Mean error of the busy seconds; None without any."""
        return sum(self.rate_errors) / len(self.rate_errors) if self.rate_errors else None

    @property
    def rate_error_p95(self) -> float | None:
        """The error that 95 % of the busy seconds do not exceed; None without any."""
        return percentile(self.rate_errors, 0.95) if self.rate_errors else None


@dataclass(frozen=True)
class Verdict:
    """VALID, or INVALID with every reason; notes say what could not be judged."""

    verdict: Literal["VALID", "INVALID"]
    reasons: tuple[str, ...]
    notes: tuple[str, ...]


def summarize(samples: LinkSamples, logs: Sequence[ReplayLog], delay_s: float) -> LinkSummary:
    """Return how the link behaved over the replays of a run, given in order of time.

    Parameters
    ----------
    samples : LinkSamples
        Readings over the whole run.
    logs : sequence of ReplayLog
        One for each request, say.
    delay_s : float
        One-way delay of the link, where a trace has none of its own.
    """
    rows = [row for log in logs for row in link_rows(samples, log, delay_s)]
    late_ms = [(step.applied_s - step.planned_s) * 1e3 for log in logs for step in log.steps]
    return LinkSummary(
        replays=len(logs),
        replay_s=sum(row.duration_s for row in rows),
        busy_s=sum(row.busy_s for row in rows),
        rate_errors=tuple(busy_second_errors(rows)),
        excess_s=max((excess_s(samples, log, delay_s) for log in logs), default=0.0),
        step_late_p50_ms=percentile(late_ms, 0.5) if late_ms else 0.0,
        step_late_p99_ms=percentile(late_ms, 0.99) if late_ms else 0.0,
        queue_drops=samples.drops[-1] - samples.drops[0] if len(samples) else 0,
        capacity_bytes=sum(row.capacity_bytes for row in rows),
        delivered_bytes=sum(row.delivered_bytes for row in rows),
    )


def busy_second_errors(rows: Sequence[LinkRow]) -> list[float]:
    """Return the error of each second of busy time: rows are joined until their busy time fills a second."""
    errors = []
    busy_s = capacity = delivered = 0.0
    for row in rows:
        busy_s += row.busy_s
        capacity += row.busy_capacity_bytes
        delivered += row.busy_delivered_bytes
        # sums of tenths fall a hair short of one
        if busy_s >= BUSY_SECOND_S - 1e-9:
            errors.append(abs(delivered / capacity - 1))
            busy_s = capacity = delivered = 0.0
    if busy_s >= LEAST_BUSY_S:
        errors.append(abs(delivered / capacity - 1))
    return errors


def judge(
    summary: LinkSummary,
    *,
    planned_rtt_ms: float,
    rtt_ms: float,
    delay_report: Mapping[str, Any],
    limits: FidelityLimits | None = None,
) -> Verdict:
    """Return whether the link was what the trace describes.

    A run whose requests never loaded the link for half a second (text alone, say) proves nothing about its
    rate: that is a note. It is a reason if much was carried, for then a queue should have stood.

    Parameters
    ----------
    summary : LinkSummary
        From :func:`summarize`.
    planned_rtt_ms, rtt_ms : float
        Twice the one-way delay, and the smallest round trip measured.
    delay_report : mapping
        ``EmulatedNetwork.delay_report()`` at the end of the run; empty if there was none.
    limits : FidelityLimits, optional
        By default those of the class.
    """
    limits = limits or FidelityLimits()
    reasons, notes = _judge_rate(summary, limits)
    if not delay_report:
        reasons.append("the delay node gave no account of its frames")
    # netem has no such figures
    late_ms = {"p99": 0.0, "max": 0.0, **delay_report.get("late_ms", {})}
    drops = sum(delay_report.get("drops", {}).values())
    checks = (
        (summary.excess_s * 1e3, limits.excess_s * 1e3, "ms of bytes at the peak rate arrived beyond capacity"),
        (abs(rtt_ms - planned_rtt_ms), limits.rtt_error_ms, f"ms off the planned round trip of {planned_rtt_ms:g} ms"),
        (summary.step_late_p99_ms, limits.step_late_p99_ms, "ms late: 99th percentile of the trace's steps"),
        (late_ms["p99"], limits.frame_late_p99_ms, "ms late: 99th percentile of frames leaving the delay node"),
        (late_ms["max"], limits.frame_late_max_ms, "ms late: the latest frame leaving the delay node"),
        (drops, limits.unexplained_drops, "frames lost in the delay node"),
    )
    reasons += [f"{value:.4g} {what}; the limit is {limit:g}" for value, limit, what in checks if not value <= limit]
    return Verdict("INVALID" if reasons else "VALID", tuple(reasons), tuple(notes))


def _judge_rate(summary: LinkSummary, limits: FidelityLimits) -> tuple[list[str], list[str]]:
    """Reasons and notes about the rate."""
    if summary.replays and not summary.capacity_bytes:
        return ["the link was not sampled while the trace was replayed"], []
    mean, p95 = summary.rate_error_mean, summary.rate_error_p95
    if mean is None or p95 is None:
        said = f"a queue stood in front of the link for {summary.busy_s:.2f} s in all"
        loaded = summary.delivered_bytes > LEAST_LOAD_SHARE * summary.capacity_bytes
        if loaded and summary.replay_s >= LEAST_REPLAY_S:
            share = summary.delivered_bytes / summary.capacity_bytes
            return [f"{said}, though {share:.0%} of its capacity was carried: nothing held the bytes back"], []
        return [], [f"the rate was not judged: {said}"]
    figures = (("mean", mean, limits.rate_error_mean), ("95th percentile", p95, limits.rate_error_p95))
    return [
        f"rate error of {error:.1%} per busy second ({name}); the limit is {limit:.0%}"
        for name, error, limit in figures
        if not error <= limit
    ], []


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that ``share`` of the values do not exceed (nearest rank)."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
