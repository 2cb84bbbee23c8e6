"""Turn the selftest's figures into the limits within which results can be trusted."""

from collections.abc import Mapping, Sequence
from typing import Any

from testbed.fidelity import FidelityLimits
from testbed.link_account import LinkRow

_FULL_ROW_S = 0.08
_LEAST_ROWS = 5
_BEGINNING_S = 1.0


def tenth_errors(rows: Sequence[LinkRow]) -> list[float]:
    """Return how far each full tenth of a second is from the trace; nothing if the link was not full.

    Full is a tenth in which a queue stood throughout. On a fast link the queue is too short to be seen in every sample,
    for the shaper makes up for rests of a few milliseconds: there the link was full if *all* that came after the flow's
    beginning is what the trace allowed.
    """
    busy = [row for row in rows if row.busy_s >= _FULL_ROW_S]
    if len(busy) >= _LEAST_ROWS:
        return [abs(row.busy_delivered_bytes / row.busy_capacity_bytes - 1) for row in busy]
    later = [row for row in rows[:-1] if row.start_s >= _BEGINNING_S and row.capacity_bytes]
    errors = [abs(row.delivered_bytes / row.capacity_bytes - 1) for row in later]
    return errors if errors and sum(errors) / len(errors) <= FidelityLimits().rate_error_fine else []


def trusted_rates(figures: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return for each flow the rates between which every measured link was exact.

    Parameters
    ----------
    figures : sequence of mapping
        Those of the rate lines have ``flow``, ``mbps`` (lowest, highest) and, if the link could be filled, ``within``.

    Returns
    -------
    list of dict
        ``flow``, ``mbps`` (None if no rate was exact) and ``words``.
    """
    rated = [one for one in figures if "busy_tenths" in one]
    flows = dict.fromkeys(one["flow"] for one in rated)
    return [_trusted(flow, [one for one in rated if one["flow"] == flow]) for flow in flows]


def words_on_time(figures: Sequence[Mapping[str, Any]]) -> str:
    """Return how late the steps of a trace and the frames behind the relay were, at the worst of all links measured."""
    rated = [one for one in figures if "busy_tenths" in one]
    steps_ms = max((one["step_late_p99_ms"] for one in rated), default=0.0)
    frames_ms = max((one["relay_late_p99_ms"] or 0.0 for one in rated), default=0.0)
    return f"steps of the trace at most {steps_ms:.1f} ms late, delayed frames {frames_ms:.1f} ms (99th percentiles)"


def _trusted(flow: str, rated: list[Mapping[str, Any]]) -> dict[str, Any]:
    constant = sorted((one for one in rated if one["shape"] == "constant"), key=lambda one: one["mbps"])
    # the longest row of neighbours that were all exact
    best: list[float] = []
    row: list[float] = []
    for one in constant:
        row = [*row, one["mbps"][0]] if one.get("within") else []
        best = max(best, row, key=len)
    if not best:
        return {"flow": flow, "mbps": None, "words": "no rate was exact"}
    # where no queue stood nothing was compared
    changing = [one["within"] for one in rated if one["shape"] != "constant" and "within" in one]
    words = f"{best[0]:g} to {best[-1]:g} Mbit/s; {sum(changing)} of {len(changing)} changing links were exact"
    return {"flow": flow, "mbps": [best[0], best[-1]], "words": words}
