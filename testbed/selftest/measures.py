"""The measurements of the selftest: each runs something real and returns one line of the table."""

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from testbed.fidelity import FidelityLimits, Verdict, judge, percentile, summarize
from testbed.link_account import link_rows
from testbed.link_settings import FRAME_BYTES, LinkSettings
from testbed.loss import loss_tolerance
from testbed.network import EmulatedNetwork
from testbed.selftest.cases import DELAY_MS, RateCase, constant, lte, outages, rate_cases
from testbed.selftest.flows import FlowRun, run_flow, run_sender, start_sink
from testbed.selftest.summary import tenth_errors
from testbed.trace import BYTES_PER_MBIT

LIMITS = FidelityLimits()
# Between these accuracy is demanded; beyond, a line says how it is and fails nothing.
LEAST_MBPS, MOST_MBPS = 5.0, 500.0
_DELAYS_MS = (1.0, 5.0, 25.0, 45.0)  # ping shows whole milliseconds from 100 on
_LOAD_PER_CORE = 3


@dataclass(frozen=True)
class Line:
    """A line of the result.

    Parameters
    ----------
    what, found : str
        What was measured, and the outcome in words.
    is_right : bool
        Whether it is within its limit; True where there is none.
    figures : dict
        For the JSON file.
    """

    what: str
    found: str
    is_right: bool
    figures: dict[str, Any] = field(default_factory=dict)


def measure_rate(case: RateCase) -> Line:
    """How far the delivered bytes are from the trace, per tenth of a second in which a queue stood."""
    link = LinkSettings(delay_ms=DELAY_MS, queue_bytes=case.queue_bytes)
    run = run_flow(case.trace, case.flow, case.duration_s, link)
    errors = tenth_errors(link_rows(run.samples, run.log, link.counted_delay_s, only_certain=True))
    late_ms = [(step.applied_s - step.planned_s) * 1e3 for step in run.log.steps]
    figures = {
        "shape": case.shape,
        "mbps": [case.low_mbps, case.high_mbps],
        "flow": case.flow,
        "busy_tenths": len(errors),
        "error_mean": sum(errors) / len(errors) if errors else None,
        "error_p95": percentile(errors, 0.95) if errors else None,
        "step_late_p99_ms": percentile(late_ms, 0.99),
        "relay_late_p99_ms": run.delay_report.get("late_ms", {}).get("p99"),
        "drops": sum(run.delay_report["drops"].values()),
        "cpu": vars(run.cpu),
    }
    name = case.trace.name if case.shape == "lte" else f"{case.shape} {case.trace.name} Mbit/s"
    what = f"{name}, {case.flow}"
    demanded = case.low_mbps >= LEAST_MBPS and case.high_mbps <= MOST_MBPS
    if not errors:
        # it let through all that was offered: too little, or by a sender that lets no queue grow
        used = figures["used"] = _share_used(run)
        return Line(what, f"no queue stood: {used:.0%} of the link was used", True, figures)
    mean, p95 = figures["error_mean"], figures["error_p95"]
    within = mean <= LIMITS.rate_error_fine and not figures["drops"]
    found = f"{mean:.2%} mean, {p95:.2%} p95 per 100 ms ({len(errors)} of them)"
    return Line(what, found, within or not demanded, {**figures, "within": within})


def _share_used(run: FlowRun) -> float:
    """Bytes that arrived, of those that the trace allowed."""
    rows = link_rows(run.samples, run.log, run.link.counted_delay_s)
    return sum(row.delivered_bytes for row in rows) / sum(row.capacity_bytes for row in rows)


def measure_round_trips(backend: str | None = None) -> Line:
    """How far an idle link's round trip is from twice its delay."""
    errors = {}
    with EmulatedNetwork(link=LinkSettings(delay_ms=DELAY_MS), initial_rate_mbps=100.0, backend=backend) as network:
        for delay_ms in _DELAYS_MS:
            network.set_delay(delay_ms)
            errors[delay_ms] = min(network.ping_ms(20)) - 2 * delay_ms
    found = ", ".join(f"{error:+.2f} ms at {2 * delay_ms:g}" for delay_ms, error in errors.items())
    worst = max(abs(error) for error in errors.values())
    return Line("round trip", found, worst <= LIMITS.rtt_error_idle_ms, {"errors_ms": errors})


def measure_loss(burst_frames: float) -> Line:
    """Whether as many frames are lost as asked for, and not more than chance explains."""
    link = LinkSettings(delay_ms=DELAY_MS, loss=0.02, uplink_loss=0.0, loss_burst_frames=burst_frames)
    report = run_flow(constant(50.0), "udp", 2.0, link).delay_report
    lost = report["lost"]["down"]
    frames = lost + report["passed"]["down"]
    share, tolerance = lost / frames, loss_tolerance(link.down, frames)
    found = f"{share:.2%} of {frames} frames for {link.loss:.0%} asked for, ± {tolerance:.2%} by chance"
    what = f"loss, bursts of {burst_frames:g}"
    return Line(what, found, abs(share - link.loss) <= tolerance, {"share": share, "frames": frames})


def measure_jitter() -> Line:
    """Whether round trips spread as far as the jitter says and no farther."""
    link = LinkSettings(delay_ms=10.0, jitter_ms=5.0)
    with EmulatedNetwork(link=link, initial_rate_mbps=100.0) as network:
        times_ms = network.ping_ms(60)
    low_ms, high_ms = link.rtt_ms - 2 * link.jitter_ms, link.rtt_ms + 2 * link.jitter_ms
    least_ms, most_ms = min(times_ms), percentile(times_ms, 0.95)
    inside = low_ms <= least_ms and most_ms <= high_ms + LIMITS.rtt_error_ms
    spread = most_ms - least_ms >= link.jitter_ms
    found = f"round trips of {least_ms:.1f} to {most_ms:.1f} ms for {low_ms:g} to {high_ms:g} ms"
    return Line("jitter", found, inside and spread, {"rtt_ms": [least_ms, most_ms]})


def measure_queue() -> Line:
    """Whether the queue holds what it should and no byte more."""
    limit = 100_000
    link = LinkSettings(delay_ms=DELAY_MS, queue_bytes=limit)
    run = run_flow(constant(20.0), "udp", 1.0, link, buffer_bytes=1 << 20)
    summary = summarize(run.samples, [run.log], link.counted_delay_s)
    most = summary.queue_max_bytes
    right = limit - 2 * FRAME_BYTES <= most <= limit + FRAME_BYTES and summary.queue_drops > 0
    found = f"{most} of {limit} bytes, {summary.queue_drops} frames refused"
    return Line("queue", found, right, {"most_bytes": most, "limit_bytes": limit, "drops": summary.queue_drops})


def measure_outage() -> Line:
    """How much passes in an outage, and how soon frames arrive after it."""
    link = LinkSettings(delay_ms=DELAY_MS)
    run = run_flow(outages(20.0), "udp", 3.5, link)
    leaked, resumed_ms = outage_figures(run)
    right = leaked <= 2 * FRAME_BYTES and 0 <= resumed_ms <= LIMITS.step_late_p99_ms
    found = f"{leaked} bytes passed in a second, the first frame {resumed_ms:.1f} ms after its end"
    return Line("outage", found, right, {"leaked_bytes": leaked, "resumed_ms": resumed_ms})


def outage_figures(run: FlowRun) -> tuple[int, float]:
    """Bytes that passed in a replay's first outage, and when the first arrived after its end (ms, delay taken off)."""
    rates = [step.rate_mbps for step in run.log.steps]
    first = rates.index(0.0)
    last = next(i for i in range(first, len(rates)) if rates[i])
    delay_s = run.link.delay_ms / 1e3
    # what was on its way when the outage began arrives within a moment
    start_s, end_s = (run.log.steps[i].planned_s + delay_s for i in (first, last))
    inside = run.samples.window(start_s + 2 * LIMITS.step_late_p99_ms / 1e3, end_s)
    after = run.samples.window(end_s, end_s + 2.0)
    stood = inside.received_bytes[-2]
    arrived_s = next(
        (
            time_s
            for time_s, received in zip(after.time_s, after.received_bytes, strict=True)
            if received > stood + FRAME_BYTES
        ),
        float("inf"),
    )
    return stood - inside.received_bytes[0], (arrived_s - end_s) * 1e3


def measure_uplink() -> Line:
    """Whether the way back has the rate it was given."""
    link = LinkSettings(delay_ms=DELAY_MS, uplink_mbps=10.0)
    with EmulatedNetwork(link=link, initial_rate_mbps=100.0) as network:
        target = start_sink(network, "storage")
        before_s, before = time.monotonic(), network.uplink_bytes()
        run_sender(network, "gpu", "udp", target, 2.0)
        # the last frames of the buffer drain behind the sender
        sent = network.uplink_bytes() - before
        duration_s = time.monotonic() - before_s
    rate = sent / BYTES_PER_MBIT / duration_s
    # starting a program takes part of the time
    return Line("uplink", f"{rate:.2f} Mbit/s of 10", 8.0 <= rate <= 10.1, {"mbps": rate})


def measure_load() -> Line:
    """Whether a run beside busy processors is found out."""
    loops = _LOAD_PER_CORE * len(os.sched_getaffinity(0))
    link = LinkSettings(delay_ms=DELAY_MS)
    run = run_flow(lte(1.0), "cubic", 4.0, link, busy_loops=loops)
    verdict = verdict_of(run)
    summary = summarize(run.samples, [run.log], link.counted_delay_s)
    mean = summary.rate_error_mean
    starved = any("starved" in reason for reason in verdict.reasons)
    rate = "not measurable" if mean is None else f"{mean:.2%}"
    found = f"{verdict.verdict} ({loops} busy loops; rate error {rate} a second, p99 of steps "
    found += f"{summary.step_late_p99_ms:.1f} ms late, processors waited for {run.cpu.pressure or 0:.0%} of the time)"
    figures = {"verdict": verdict.verdict, "reasons": list(verdict.reasons), "rate_error": mean, "cpu": vars(run.cpu)}
    return Line("starved on purpose", found, verdict.verdict == "INVALID" and starved, figures)


def verdict_of(run: FlowRun) -> Verdict:
    """What a run with this traffic would have said of itself."""
    summary = summarize(run.samples, [run.log], run.link.counted_delay_s)
    return judge(summary, run.link, rtt_ms=[run.rtt_ms], delay_report=run.delay_report, cpu=run.cpu)


def all_measures(quick: bool) -> Iterator[Callable[[], Line]]:
    """Yield the measurements in their order."""
    yield measure_round_trips
    for case in rate_cases(quick):
        yield lambda case=case: measure_rate(case)  # type: ignore[misc]  # a default argument, bound at once
    yield from (lambda: measure_loss(1.0), measure_queue, measure_outage)
    if not quick:
        yield from (lambda: measure_loss(5.0), measure_jitter, measure_uplink)
    yield measure_load


def disturbed(lines: list[Line]) -> list[str]:
    """What other programs took while the rates were measured, where it was more than a run may bear."""
    shares = [line.figures["cpu"] for line in lines if "busy_tenths" in line.figures]
    foreign = sum(share["foreign"] for share in shares) / max(1, len(shares))
    return [f"other programs took {foreign:.0%} of the processors"] if foreign > LIMITS.cpu_foreign else []
