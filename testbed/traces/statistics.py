"""What a trace is like, in numbers; all of them over time, so that rows of any length count as they should."""

import itertools
import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass

from testbed.trace import Trace

PERCENTILES = (5, 50, 95)
LAG_S = 1.0


@dataclass(frozen=True)
class TraceStatistics:
    """Statistics of one period of a trace.

    Parameters
    ----------
    percentiles_mbps : dict
        For each of ``PERCENTILES``, the rate that the link is at or below for that share of the time.
    variation : float
        Coefficient of variation: standard deviation / mean.
    outage_s, longest_outage_s : float
        Time at rate 0, and the longest unbroken part of it within the period.
    autocorrelation : float or None
        Of the rate with itself ``LAG_S`` later, round the period; None for a constant link.
    delay_ms : tuple of float or None
        Least and greatest one-way delay, where the trace has its own.
    """

    duration_s: float
    rows: int
    mean_mbps: float
    variation: float
    min_mbps: float
    max_mbps: float
    percentiles_mbps: dict[int, float]
    outage_s: float
    longest_outage_s: float
    autocorrelation: float | None
    delay_ms: tuple[float, float] | None

    @property
    def outage_share(self) -> float:
        """Share of the time in which nothing arrives."""
        return self.outage_s / self.duration_s


def describe(trace: Trace) -> TraceStatistics:
    """Return the statistics of a trace."""
    rates_mbps = trace.rates_mbps
    durations_s = [end_s - start_s for start_s, end_s in itertools.pairwise((*trace.times_s, trace.period_s))]
    mean_mbps = _mean(rates_mbps, durations_s)
    variance = _mean([(rate_mbps - mean_mbps) ** 2 for rate_mbps in rates_mbps], durations_s)
    outages_s = _outages_s(rates_mbps, durations_s)
    return TraceStatistics(
        duration_s=trace.period_s,
        rows=len(rates_mbps),
        mean_mbps=mean_mbps,
        variation=math.sqrt(variance) / mean_mbps,
        min_mbps=min(rates_mbps),
        max_mbps=max(rates_mbps),
        percentiles_mbps={percent: _percentile(rates_mbps, durations_s, percent) for percent in PERCENTILES},
        outage_s=sum(outages_s),
        longest_outage_s=max(outages_s, default=0.0),
        autocorrelation=_autocovariance(trace, mean_mbps, LAG_S) / variance if variance else None,
        delay_ms=None if trace.delays_ms is None else (min(trace.delays_ms), max(trace.delays_ms)),
    )


def mean_mbps_in(trace: Trace, count: int) -> list[float]:
    """Return the mean rate in each of ``count`` equal parts of the period."""
    width_s = trace.period_s / count
    return [8e-6 * trace.capacity_bytes(i * width_s, (i + 1) * width_s) / width_s for i in range(count)]


def _mean(values: Sequence[float], weights: Sequence[float]) -> float:
    return math.fsum(map(operator.mul, values, weights)) / math.fsum(weights)


def _percentile(values: Sequence[float], weights: Sequence[float], percent: float) -> float:
    """Return the smallest value at or below which the weight's share reaches ``percent``."""
    target = percent / 100 * math.fsum(weights)
    reached = 0.0
    ordered = sorted(zip(values, weights, strict=True))
    for value, weight in ordered:
        reached += weight
        if reached >= target:
            return value
    return ordered[-1][0]  # a rounding error short of the whole


def _outages_s(rates_mbps: Sequence[float], durations_s: Sequence[float]) -> list[float]:
    """Return the lengths of the unbroken outages."""
    rows = zip(rates_mbps, durations_s, strict=True)
    return [sum(s for _, s in part) for is_up, part in itertools.groupby(rows, lambda row: row[0] > 0) if not is_up]


def _autocovariance(trace: Trace, mean_mbps: float, lag_s: float) -> float:
    """Return the mean product of deviations ``lag_s`` apart: exact, as both factors are constant between changes."""
    period_s = trace.period_s
    changes_s = sorted({*trace.times_s, *((time_s - lag_s) % period_s for time_s in trace.times_s), period_s})
    total = 0.0
    for start_s, end_s in itertools.pairwise(changes_s):
        middle_s = (start_s + end_s) / 2
        now, later = trace.rate_at_mbps(middle_s), trace.rate_at_mbps(middle_s + lag_s)
        total += (end_s - start_s) * (now - mean_mbps) * (later - mean_mbps)
    return total / period_s
