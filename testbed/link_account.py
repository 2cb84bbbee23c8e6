"""Account for a replayed link: what the trace allowed in each tenth of a second, and what arrived.

What *busy* means. A link that nobody uses delivers less than its capacity without being wrong, and TCP leaves it
idle often: between two requests, for a round trip of each slow start, while the receiver is slow. So the rate is
compared only while a queue stood in front of the link, as then whatever does not arrive is the link's own doing.
The queue is seen in samples: a span is busy from the second to the last but one of a run of samples that all
found bytes waiting. The first and the last interval of a run are left out, for the queue may have formed or
ended anywhere in them, and the shaper's saved-up burst leaves in the first. So is an outage, in which the gate
lets one frame out, and the first moment of each step: the frame that was on the line is finished at the rate at
which it was begun, 2.4 ms at 5 Mbit/s. Samples far apart prove nothing of the time between them. A queue that runs
empty and fills again between two near ones stays unseen, and counts against the link, unless only what is certain
is asked for: then each sample has to have found as many bytes as the link may carry until the next. A run does not
ask for that, since a fast link's queue is seldom so long.

What arrives too much is looked for everywhere, busy or not (:func:`excess_s`).
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from testbed.link_settings import FRAME_BYTES
from testbed.replay import ReplayLog
from testbed.sampler import LinkSamples, append_reading, empty_samples
from testbed.trace import BYTES_PER_MBIT

ROW_S = 0.1
MAX_SAMPLE_GAP_S = 0.02
# In the moment after an outage the gate opens and the first frames travel.
WAKE_S = 0.01
# A link may be this much too fast before bytes count as excess: the accuracy asked of its rate.
RATE_TOLERANCE = 0.02
# What a shaper that has rested may send at once: its smallest burst of two frames, and one that overdraws it. On a
# link of 0.5 Mbit/s that is 73 ms of its rate.
BURST_BYTES = 3 * FRAME_BYTES


@dataclass(frozen=True)
class LinkRow:
    """A tenth of a second of one replay (the last row may be shorter).

    Parameters
    ----------
    start_s, duration_s : float
        Seconds since the replay's origin, and the length of the row.
    capacity_bytes : float
        What the replayed steps allowed, at the moments they were planned for.
    delivered_bytes : float
        What arrived at the receiver's interface, each moment shifted by the one-way delay.
    busy_s : float
        How long a queue stood in front of the link for certain.
    busy_capacity_bytes, busy_delivered_bytes : float
        The same two over that time.
    """

    start_s: float
    duration_s: float
    capacity_bytes: float
    delivered_bytes: float
    busy_s: float
    busy_capacity_bytes: float
    busy_delivered_bytes: float


class PlannedLink:
    """The capacity and the delay that a replay planned, as functions of CLOCK_MONOTONIC."""

    def __init__(self, log: ReplayLog, delay_s: float | None) -> None:
        self._starts_s = [step.planned_s for step in log.steps]
        self._rates = [step.rate_mbps * BYTES_PER_MBIT for step in log.steps]
        self._delays_s = _delays_s(log, delay_s)
        self._sums = [0.0]
        self._held_s = [float("-inf")]
        for i in range(1, len(self._starts_s)):
            length_s = self._starts_s[i] - self._starts_s[i - 1]
            self._sums.append(self._sums[-1] + length_s * self._rates[i - 1])
            # frames keep their order: after the delay has shrunk none overtakes the last one before
            self._held_s.append(max(self._held_s[-1], self._starts_s[i] + self._delays_s[i - 1]))

    @property
    def peak_rate(self) -> float:
        """The highest rate, in bytes per second."""
        return max(self._rates)

    def capacity_until(self, time_s: float) -> float:
        """Return the bytes the link could carry from its origin to ``time_s``."""
        i = self._step_at(time_s)
        return self._sums[i] + (time_s - self._starts_s[i]) * self._rates[i]

    def arrival_s(self, time_s: float) -> float:
        """Return when a frame put on the line at ``time_s`` arrives."""
        i = self._step_at(time_s)
        return max(time_s + self._delays_s[i], self._held_s[i])

    def unfit_s(self) -> list[tuple[float, float]]:
        """Return the spans in which the rate cannot be compared: outages, and frames that steps find on the line."""
        spans = []
        for i, end_s in enumerate(self._starts_s[1:]):
            rate = self._rates[i]
            if not rate:
                spans.append((self._starts_s[i], end_s + WAKE_S))
            elif rate != self._rates[i + 1]:
                spans.append((end_s, end_s + FRAME_BYTES / rate))
        if self._rates and not self._rates[-1]:
            spans.append((self._starts_s[-1], float("inf")))
        return _joined(spans)

    def _step_at(self, time_s: float) -> int:
        return max(0, bisect_right(self._starts_s, time_s) - 1)


def link_rows(
    samples: LinkSamples, log: ReplayLog, delay_s: float | None, *, only_certain: bool = False
) -> list[LinkRow]:
    """Return the account of one replay, a row for each tenth of a second.

    Parameters
    ----------
    samples : LinkSamples
        Readings that reach from before the replay's origin to one delay after its end.
    log : ReplayLog
        The replay.
    delay_s : float or None
        How long bytes travel to where they were counted, where the trace has no delay of its own; None: they were
        counted where they left the shaper (``LinkSettings.counted_delay_s``).
    only_certain : bool
        Whether only that is busy in which the queue cannot have run empty between two samples.
    """
    samples, end_s = _replayed(samples, log, delay_s)
    if not log.steps or end_s <= log.origin_s:
        return []
    planned = PlannedLink(log, delay_s)
    busy = busy_spans(samples, log.origin_s, end_s, planned if only_certain else None)
    spans = _without(busy, planned.unfit_s())
    line = _changes(samples)
    rows = []
    count = 0
    # a product, not a running sum, and no sliver of a last row
    while (start_s := log.origin_s + count * ROW_S) < end_s - 1e-6:
        stop_s = min(end_s, start_s + ROW_S)
        inside = [(max(a, start_s), min(b, stop_s)) for a, b in spans if a < stop_s and b > start_s]
        rows.append(
            LinkRow(
                start_s=start_s - log.origin_s,
                duration_s=stop_s - start_s,
                capacity_bytes=_capacity(planned, start_s, stop_s),
                delivered_bytes=_delivered(samples, planned, start_s, stop_s),
                busy_s=sum(b - a for a, b in inside),
                busy_capacity_bytes=sum(_capacity(planned, a, b) for a, b in inside),
                busy_delivered_bytes=sum(_delivered(line, planned, a, b) for a, b in inside),
            )
        )
        count += 1
    return rows


def busy_spans(
    samples: LinkSamples, start_s: float, end_s: float, planned: PlannedLink | None = None
) -> list[tuple[float, float]]:
    """Return the spans within ``start_s`` and ``end_s`` in which a queue stood in front of the link.

    With ``planned``, one that cannot have run empty between two samples.
    """
    spans = []
    run: list[float] = []
    next_times_s = [*samples.time_s[1:], *samples.time_s[-1:]]
    for time_s, next_s, backlog in zip(samples.time_s, next_times_s, samples.backlog_bytes, strict=True):
        stands = backlog > 0 and start_s <= time_s <= end_s
        if stands and planned is not None:
            stands = backlog >= _capacity(planned, time_s, next_s)
        if run and (not stands or time_s - run[-1] > MAX_SAMPLE_GAP_S):
            spans.append(run)
            run = []
        if stands:
            run.append(time_s)
    spans.append(run)
    return [(run[1], run[-2]) for run in spans if len(run) > 3]


def _without(spans: list[tuple[float, float]], holes: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Spans with the holes cut out; both in order, holes apart from each other."""
    for hole_start_s, hole_end_s in holes:
        spans = [
            part
            for start_s, end_s in spans
            for part in ((start_s, min(end_s, hole_start_s)), (max(start_s, hole_end_s), end_s))
            if part[0] < part[1]
        ]
    return spans


def excess_s(samples: LinkSamples, log: ReplayLog, delay_s: float | None) -> float:
    """Return the worst surplus of a replay, as time at its peak rate.

    The surplus of a window is what arrived in it above 102 % of its capacity and the burst of a slow link; the worst
    is taken over all windows between two samples, so that a short burst shows as well as a link that is always too
    fast.
    """
    samples, end_s = _replayed(samples, log, delay_s)
    if not log.steps or end_s <= log.origin_s:
        return 0.0
    planned = PlannedLink(log, delay_s)
    worst = 0.0
    lowest = float("inf")
    for time_s in samples.time_s:
        if log.origin_s <= time_s <= end_s:
            allowed = (1 + RATE_TOLERANCE) * planned.capacity_until(time_s)
            surplus = _counter_at(samples, planned.arrival_s(time_s)) - allowed
            lowest = min(lowest, surplus)
            worst = max(worst, surplus - lowest)
    surplus = max(0.0, worst - BURST_BYTES)
    return surplus / planned.peak_rate if planned.peak_rate else float(surplus > 0)


def _delays_s(log: ReplayLog, delay_s: float | None) -> list[float]:
    """How long bytes travel to where they are counted, for each step."""
    if delay_s is None:
        return [0.0] * len(log.steps)
    return [delay_s if step.delay_ms is None else step.delay_ms / 1e3 for step in log.steps]


def _joined(spans: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Spans in order of their beginnings, joined where they touch."""
    joined: list[tuple[float, float]] = []
    for start_s, end_s in spans:
        if joined and start_s <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end_s, joined[-1][1]))
        else:
            joined.append((start_s, end_s))
    return joined


def _replayed(samples: LinkSamples, log: ReplayLog, delay_s: float | None) -> tuple[LinkSamples, float]:
    """The samples that concern a replay, and the moment up to which they reach: its end at the latest."""
    longest_s = max([delay_s or 0.0, *_delays_s(log, delay_s)])
    samples = samples.window(log.origin_s, log.stopped_s + longest_s)
    if not len(samples):
        return samples, log.origin_s
    return samples, min(log.stopped_s, samples.time_s[-1] - longest_s)


def _capacity(planned: PlannedLink, start_s: float, end_s: float) -> float:
    return planned.capacity_until(end_s) - planned.capacity_until(start_s)


def _changes(samples: LinkSamples) -> LinkSamples:
    """The samples that found more bytes than the one before.

    A busy line carries the bits of a frame all the time between two arrivals: so a slow one's bytes are spread over
    it, where all samples together would have them arrive at once.
    """
    chosen = empty_samples()
    for i in range(len(samples)):
        if i == 0 or samples.received_bytes[i] != samples.received_bytes[i - 1]:
            append_reading(chosen, samples.reading(i))
    return chosen


def _delivered(samples: LinkSamples, planned: PlannedLink, start_s: float, end_s: float) -> float:
    arrived = _counter_at(samples, planned.arrival_s(end_s))
    return arrived - _counter_at(samples, planned.arrival_s(start_s))


def _counter_at(samples: LinkSamples, time_s: float) -> float:
    """Bytes received until ``time_s``, on a straight line between two samples."""
    times: Sequence[float] = samples.time_s
    after = bisect_right(times, time_s)
    if after == 0 or after == len(times):
        return float(samples.received_bytes[min(after, len(times) - 1)])
    t0, t1 = times[after - 1], times[after]
    b0, b1 = samples.received_bytes[after - 1], samples.received_bytes[after]
    return b0 + (b1 - b0) * (time_s - t0) / (t1 - t0)
