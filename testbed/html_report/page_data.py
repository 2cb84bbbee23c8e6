"""What the page's script draws from: the run's figures by request, small enough to stand in the page."""

from collections.abc import Iterable, Sequence
from typing import Any

from testbed.html_report.markers import MARKER_PATHS
from testbed.html_report.timeline import timeline
from testbed.link_account import LinkRow
from testbed.metrics import STAGES, RequestRow
from testbed.palette import level_shade, method_style
from testbed.run_files import RunFiles
from testbed.trace import BYTES_PER_MBIT


def page_data(run: RunFiles) -> dict[str, Any]:
    """Return the run as the script reads it; times in ms (requests) and s (timelines), rates in Mbit/s."""
    methods = list(run.summary["methods"])
    requests = [_request(run, row) for row in run.requests if row.method in methods]
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


def _request(run: RunFiles, row: RequestRow) -> dict[str, Any]:
    key = (row.request, row.method)
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
        "timeline": timeline(row, run.events.get(key, ())),
        "link": _link(run.link.get(key, ())),
    }


def _link(rows: Sequence[LinkRow]) -> dict[str, list[float]]:
    """Columns, as they are shorter than rows: when each span starts and, last, ends; its rates."""
    ends = [rows[-1].start_s + rows[-1].duration_s] if rows else []
    return {
        "edges_s": [round(edge_s, 3) for edge_s in [*(row.start_s for row in rows), *ends]],
        "capacity_mbps": [_mbps(row.capacity_bytes, row.duration_s) for row in rows],
        "delivered_mbps": [_mbps(row.delivered_bytes, row.duration_s) for row in rows],
    }


def _mbps(size_bytes: float, duration_s: float) -> float:
    return round(size_bytes / duration_s / BYTES_PER_MBIT, 2) if duration_s > 0 else 0.0


def _levels(requests: Iterable[dict[str, Any]]) -> list[str]:
    """Every encoding that a chunk came in or was asked for, finest first within a codec; ``recompute`` last."""
    names = {name for request in requests for name in request["levels"]}
    names |= {mark["level"] for request in requests for mark in request["timeline"] if "level" in mark}
    return sorted(names, key=lambda name: (name == "recompute", name.rpartition("-")[0] or name, level_shade(name)))
