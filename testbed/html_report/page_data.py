"""What the page's script draws from: the run's figures by request, small enough to stand in the page."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from testbed.html_report.markers import MARKER_PATHS
from testbed.html_report.timeline import timeline
from testbed.link_account import LinkRow
from testbed.metrics import STAGES, RequestRow
from testbed.palette import level_shade, method_style
from testbed.run_files import RunFiles
from testbed.trace import BYTES_PER_MBIT

# The time axis of a timeline reaches a little beyond its last mark (waterfall.js).
_MARGIN = 1.02


def page_data(run: RunFiles) -> dict[str, Any]:
    """Return the run as the script reads it; times in ms (requests) and s (timelines), rates in Mbit/s."""
    methods = list(run.summary["methods"])
    members = Counter((row.batch, row.method) for row in run.requests)
    requests = [_request(run, row, members[row.batch, row.method]) for row in run.requests if row.method in methods]
    return {
        "slo_ms": run.summary["slo"]["ttft_ms"],
        "stages": list(STAGES),
        "methods": [
            {
                "name": name,
                "marker": MARKER_PATHS[method_style(place).marker],
                "dash": method_style(place).dash,
                "stages_ms": figures["stages_ms"],
                "levels": figures["levels"],
            }
            for place, (name, figures) in enumerate(run.summary["methods"].items())
        ],
        "levels": [{"name": name, "shade": level_shade(name)} for name in _levels(requests)],
        "requests": requests,
    }


def _request(run: RunFiles, row: RequestRow, batch_size: int) -> dict[str, Any]:
    key = (row.request, row.method)
    marks = timeline(row, run.events.get(key, ()))
    # as far as the timeline is drawn
    end_s = max(run.summary["slo"]["ttft_ms"] / 1e3, (row.ttft_ms or 0.0) / 1e3, *(mark["end_s"] for mark in marks))
    return {
        "request": row.request,
        "method": row.method,
        "context": row.context,
        "status": row.status,
        "error": row.error,
        "trace_offset_s": round(row.trace_offset_s, 3),
        "ttft_ms": row.ttft_ms,
        "violation": row.violation,
        "stages_ms": {stage: round(spent_ms, 2) for stage, spent_ms in row.stages_ms.items()},
        "bytes": row.bytes,
        "kl": row.kl,
        "agreement": row.agreement,
        "dppl": row.dppl,
        "levels": row.levels,
        "link_mbps": row.link_mbps,
        "timeline": marks,
        "shared_with": batch_size - 1,
        "link": _link(run.link.get(key, ()), row.arrival_s, _MARGIN * end_s),
    }


def _link(rows: Sequence[LinkRow], arrival_s: float, end_s: float) -> dict[str, list[float]]:
    """Columns, as they are shorter than rows: when each span starts and, last, ends; its rates.

    Times are from the request's arrival on, while rows begin with its batch.
    """
    spans = [(row.start_s - arrival_s, row.start_s + row.duration_s - arrival_s, row) for row in rows]
    seen = [(max(0.0, start_s), stop_s, row) for start_s, stop_s, row in spans if stop_s > 0 and start_s < end_s]
    ends = [seen[-1][1]] if seen else []
    return {
        "edges_s": [round(edge_s, 3) for edge_s in [*(start_s for start_s, _, _ in seen), *ends]],
        "capacity_mbps": [_mbps(row.capacity_bytes, row.duration_s) for _, _, row in seen],
        "delivered_mbps": [_mbps(row.delivered_bytes, row.duration_s) for _, _, row in seen],
    }


def _mbps(size_bytes: float, duration_s: float) -> float:
    return round(size_bytes / duration_s / BYTES_PER_MBIT, 2) if duration_s > 0 else 0.0


def _levels(requests: Iterable[dict[str, Any]]) -> list[str]:
    """Every encoding that a chunk came in or was asked for, finest first within a codec; ``recompute`` last."""
    names = {name for request in requests for name in request["levels"]}
    names |= {mark["level"] for request in requests for mark in request["timeline"] if "level" in mark}
    return sorted(names, key=lambda name: (name == "recompute", name.rpartition("-")[0] or name, level_shade(name)))
