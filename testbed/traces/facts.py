"""What a trace was taken for, for the eye and for a run's manifest: a wrong unit shows in its rates and its length."""

from typing import Any

from testbed.trace import Trace


def trace_facts(trace: Trace) -> dict[str, Any]:
    """Return what a run's manifest says of its trace."""
    return {
        "name": trace.name,
        "sha256": trace.sha256,
        "period_s": trace.period_s,
        "format": trace.format_name,
        "mean_mbps": trace.mean_mbps,
        "min_mbps": min(trace.rates_mbps),
        "max_mbps": max(trace.rates_mbps),
        "notes": list(trace.notes),
    }


def trace_lines(trace: Trace) -> list[str]:
    """Return a line of the same facts, and one for each note."""
    rates = f"mean {trace.mean_mbps:.4g} Mbit/s ({min(trace.rates_mbps):.4g} to {max(trace.rates_mbps):.4g})"
    head = f"trace {trace.name}: format {trace.format_name}, {rates}, {trace.period_s:.6g} s"
    return [head, *(f"  {note}" for note in trace.notes)]
