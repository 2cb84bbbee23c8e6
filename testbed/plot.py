"""The picture of a run: TTFT of every request by method, its mean stages, and the objective."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from testbed.metrics import STAGES, RequestRow
from testbed.palette import STAGE_COLOURS


def plot_ttft(summary: dict[str, Any], rows: Sequence[RequestRow], path: Path) -> None:
    """Write an SVG: a bar of mean stages for each method, a dot for each request, a line for the objective."""
    methods = list(summary["methods"])
    figure = Figure(figsize=(8, 0.9 + 0.6 * len(methods)), layout="constrained")
    FigureCanvasSVG(figure)
    axes = figure.add_subplot()
    for place, name in enumerate(methods):
        left_s = 0.0
        for stage, spent_ms in summary["methods"][name]["stages_ms"].items():
            if spent_ms:
                axes.barh(place, spent_ms / 1e3, left=left_s, height=0.55, color=STAGE_COLOURS[stage])
                left_s += spent_ms / 1e3
    done = [row for row in rows if row.ttft_ms is not None]
    ttfts_s = [row.ttft_ms / 1e3 for row in done if row.ttft_ms is not None]
    axes.scatter(ttfts_s, [methods.index(row.method) for row in done], s=16, color="black", zorder=3)
    slo_s = summary["slo"]["ttft_ms"] / 1e3
    axes.axvline(slo_s, color="black", linestyle="--", linewidth=1.2)
    axes.text(slo_s, -0.62, f" SLO {slo_s:g} s", va="center")
    axes.set_yticks(range(len(methods)), methods)
    axes.set_ylim(len(methods) - 0.5, -0.9)
    axes.set_xlim(left=0)
    axes.set_xlabel(f"TTFT over the {summary['trace']} trace, s: mean stages (bars), each request (dots)")
    handles = [Patch(color=colour) for colour in STAGE_COLOURS.values()]
    labels = [stage.replace("_", " ") for stage in STAGES]
    figure.legend(handles, labels, ncols=len(labels), loc="outside upper center", fontsize="small", frameon=False)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.savefig(path, format="svg", metadata={"Date": None})
