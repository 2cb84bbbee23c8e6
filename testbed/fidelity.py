"""Judge an emulated link by what it did: was the run on the link that the trace describes?"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from testbed.cpu_account import CpuUse
from testbed.link_account import LinkRow, excess_s, link_rows
from testbed.link_settings import FRAME_BYTES, LinkSettings
from testbed.loss import loss_counts
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
    """What a run may deviate and still be called valid: the one place of every limit.

    ``docs/fidelity.md`` says what each means and why it is what it is.
    """

    rate_error_mean: float = 0.02
    rate_error_p95: float = 0.05
    # the selftest's own, per 100 ms
    rate_error_fine: float = 0.01
    excess_s: float = 0.02
    rtt_error_idle_ms: float = 0.6
    rtt_error_ms: float = 2.0
    step_late_p99_ms: float = 10.0
    frame_late_p99_ms: float = 10.0
    # a delay node that stood still: too few frames to move a percentile, yet a request waited for them
    frame_late_max_ms: float = 50.0
    unexplained_drops: int = 0
    # two that must come together: others took processors, and somebody had to wait for one
    cpu_foreign: float = 0.10
    cpu_pressure: float = 0.20
    cpu_steal: float = 0.05


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
    queue_max_bytes : int
        The most that was seen waiting.
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
    queue_max_bytes: int
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


def summarize(samples: LinkSamples, logs: Sequence[ReplayLog], delay_s: float | None) -> LinkSummary:
    """Return how the link behaved over the replays of a run, given in order of time.

    Parameters
    ----------
    samples : LinkSamples
        Readings over the whole run.
    logs : sequence of ReplayLog
        One for each request, say.
    delay_s : float or None
        As for :func:`link_account.link_rows`.
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
        queue_max_bytes=max(samples.backlog_bytes, default=0),
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
    link: LinkSettings,
    *,
    rtt_ms: Sequence[float],
    delay_report: Mapping[str, Any],
    cpu: CpuUse | None = None,
) -> Verdict:
    """Return whether the link was what the trace and the settings describe.

    A run whose requests never loaded the link for half a second (text alone, say) proves nothing about its
    rate: that is a note. It is a reason if much was carried, for then a queue should have stood.

    Parameters
    ----------
    summary : LinkSummary
        From :func:`summarize`.
    link : LinkSettings
        What was asked for.
    rtt_ms : sequence of float
        The smallest round trip of each time it was measured, with the link at rest: before and after the run.
    delay_report : mapping
        ``EmulatedNetwork.delay_report()`` at the end of the run; empty if there was none.
    cpu : CpuUse, optional
        Of the time in which requests were served.
    """
    limits = FidelityLimits()
    reasons, notes = _judge_rate(summary, limits)
    if not delay_report:
        reasons.append("the delay node gave no account of its frames")
    # netem has no such figures
    late_ms = {"p99": 0.0, "max": 0.0, **delay_report.get("late_ms", {})}
    drops = sum(delay_report.get("drops", {}).values())
    checks = (
        (summary.excess_s * 1e3, limits.excess_s * 1e3, "ms of bytes at the peak rate arrived beyond capacity"),
        *((rtt_error_ms(one, link), limits.rtt_error_ms, _rtt_words(link)) for one in rtt_ms),
        (summary.step_late_p99_ms, limits.step_late_p99_ms, "ms late: 99th percentile of the trace's steps"),
        (late_ms["p99"], limits.frame_late_p99_ms, "ms late: 99th percentile of frames leaving the delay node"),
        (late_ms["max"], limits.frame_late_max_ms, "ms late: the latest frame leaving the delay node"),
        (drops, limits.unexplained_drops, "frames lost in the delay node"),
        (summary.queue_max_bytes, queue_limit_bytes(link), "bytes waited in the queue"),
    )
    reasons += [f"{value:.4g} {what}; the limit is {limit:g}" for value, limit, what in checks if not value <= limit]
    reasons += [
        f"{count.lost} of {count.frames} frames were lost on the way {count.name}; {count.way.loss:.3%} were asked for"
        for count in loss_counts(link, delay_report)
        if not count.is_chance
    ]
    if cpu is None:
        notes.append("the processors were not watched")
    else:
        reasons += judge_cpu(cpu, limits)
    return Verdict("INVALID" if reasons else "VALID", tuple(reasons), tuple(notes))


def judge_cpu(cpu: CpuUse, limits: FidelityLimits) -> list[str]:
    """Return why the processors were not the run's own; nothing if they were."""
    reasons = []
    if others_starve(cpu, limits):
        pressure = cpu_pressure(cpu, limits)
        reasons.append(
            f"the processors were starved: other programs took {cpu.foreign:.0%} of them while some program waited for "
            f"one {pressure:.0%} of the time; the limits are {limits.cpu_foreign:.0%} and {limits.cpu_pressure:.0%}"
        )
    if cpu.steal > limits.cpu_steal:
        reasons.append(
            f"the processors were starved: the machine below took {cpu.steal:.0%} of them; "
            f"the limit is {limits.cpu_steal:.0%}"
        )
    return reasons


def cpu_pressure(cpu: CpuUse, limits: FidelityLimits) -> float:
    """Return the share of the time in which some program waited for a processor.

    Without an account of pressure, processors that were never idle say as much.
    """
    if cpu.pressure is not None:
        return cpu.pressure
    return 1.0 if cpu.idle < limits.cpu_steal else 0.0


def others_starve(cpu: CpuUse, limits: FidelityLimits) -> bool:
    """Return whether others took processors that somebody had to wait for."""
    return cpu.foreign > limits.cpu_foreign and cpu_pressure(cpu, limits) > limits.cpu_pressure


def queue_limit_bytes(link: LinkSettings) -> int:
    """Return the most that may be seen waiting: a frame that is about to leave is counted too."""
    return link.queue_bytes + FRAME_BYTES


def rtt_error_ms(rtt_ms: float, link: LinkSettings) -> float:
    """Return how far a smallest round trip lies outside of what delay and jitter allow."""
    # NaN stays NaN, and is no match for any limit
    distance_ms = abs(rtt_ms - link.rtt_ms)
    return distance_ms if math.isnan(distance_ms) else max(0.0, distance_ms - 2 * link.jitter_ms)


def _rtt_words(link: LinkSettings) -> str:
    jitter = f" ± {2 * link.jitter_ms:g}" if link.jitter_ms else ""
    return f"ms off the planned round trip of {link.rtt_ms:g}{jitter} ms"


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
