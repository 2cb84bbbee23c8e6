"""What the selftest sends over which link: flows over constant, step and LTE-like traces."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from testbed.trace import Trace, load_trace

DELAY_MS = 5.0
FLOWS = ("cubic", "bbr", "udp")
STEP_S = 0.5
# Room for what TCP needs to keep a link full, and time for a queue to form.
QUEUE_S, LEAST_QUEUE_BYTES = 0.05, 128 * 1024


@dataclass(frozen=True)
class RateCase:
    """One flow over one trace.

    Parameters
    ----------
    shape : str
        ``constant``, ``step`` or ``lte``.
    trace : Trace
        What the link follows.
    flow : str
        Congestion control of TCP, or ``udp``.
    duration_s : float
        How long.
    """

    shape: str
    trace: Trace
    flow: str
    duration_s: float

    @property
    def low_mbps(self) -> float:
        """The trace's lowest rate."""
        return min(self.trace.rates_mbps)

    @property
    def high_mbps(self) -> float:
        """The trace's highest rate."""
        return max(self.trace.rates_mbps)

    @property
    def queue_bytes(self) -> int:
        """Room of the queue."""
        return max(LEAST_QUEUE_BYTES, round(self.high_mbps * 125_000 * QUEUE_S))


def rate_cases(quick: bool) -> list[RateCase]:
    """Return the cases in the order in which they run."""
    if quick:
        shapes = [("constant", constant(20.0)), ("constant", constant(100.0)), ("lte", lte(1.0))]
        return [RateCase(shape, trace, flow, 2.0) for shape, trace in shapes for flow in ("cubic", "udp")]
    shapes = [
        *(("constant", constant(rate_mbps)) for rate_mbps in (1.0, 5.0, 20.0, 100.0, 500.0, 1000.0)),
        ("step", steps(5.0, 50.0)),
        ("step", steps(100.0, 500.0)),
        ("lte", lte(1.0)),
        ("lte", lte(10.0)),
    ]
    return [
        RateCase(shape, trace, flow, 3.0 if shape == "constant" else 4.0) for shape, trace in shapes for flow in FLOWS
    ]


def constant(rate_mbps: float) -> Trace:
    """Return a link of one rate."""
    return made_trace(f"{rate_mbps:g}", [rate_mbps])


def steps(low_mbps: float, high_mbps: float) -> Trace:
    """Return a link that jumps between two rates twice a second."""
    return made_trace(f"{low_mbps:g} / {high_mbps:g}", [high_mbps, low_mbps])


def outages(rate_mbps: float) -> Trace:
    """Return a link that is away for a second after each second."""
    return made_trace(f"{rate_mbps:g} / 0", [rate_mbps, rate_mbps, 0.0, 0.0])


def lte(factor: float) -> Trace:
    """Return the shipped LTE trace, some times as fast."""
    trace = load_trace("lte")
    return replace(trace, name=f"lte × {factor:g}", rates_mbps=tuple(factor * rate for rate in trace.rates_mbps))


def made_trace(name: str, rates_mbps: Sequence[float]) -> Trace:
    """Return a trace whose rates hold for half a second each."""
    times_s = tuple(STEP_S * index for index in range(len(rates_mbps)))
    return Trace(name, "", times_s, tuple(rates_mbps), None, STEP_S * len(rates_mbps))
