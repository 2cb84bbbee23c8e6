"""A trace drawn as a picture: rate, outages, and the delay where the trace has its own."""

from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.style import context

from testbed.trace import Trace
from testbed.traces.statistics import mean_mbps_in

# more than that many pixels wide nobody prints it, and the file stays small
_PARTS = 240
_SIZE_INCHES, _DPI = (7.0, 2.2), 150
_RATE, _DELAY, _OUTAGE = "#0072b2", "#d55e00", "#999999"


def plot_trace(trace: Trace, path: Path, *, as_svg: bool) -> None:
    """Write a picture of one period, the same bytes for the same trace."""
    # names inside an SVG are random otherwise
    with context({"svg.hashsalt": "trace", "svg.fonttype": "none", "path.simplify": True}):
        figure = _draw(trace)
        (FigureCanvasSVG if as_svg else FigureCanvasAgg)(figure)
        if as_svg:
            figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})
        else:
            figure.savefig(path, format="png", dpi=_DPI)


def _draw(trace: Trace) -> Figure:
    figure = Figure(figsize=_SIZE_INCHES, layout="constrained")
    axes = figure.add_subplot()
    if len(trace.times_s) > _PARTS:
        rates_mbps: list[float] = mean_mbps_in(trace, _PARTS)
        edges_s = [index * trace.period_s / _PARTS for index in range(_PARTS + 1)]
    else:
        rates_mbps, edges_s = list(trace.rates_mbps), [*trace.times_s, trace.period_s]
    axes.stairs(rates_mbps, edges_s, color=_RATE, linewidth=1.0, baseline=None)
    for start_s, end_s in _outages(trace):
        axes.axvspan(start_s, end_s, color=_OUTAGE, alpha=0.5, linewidth=0)
    axes.set_xlim(0, trace.period_s)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("s")
    axes.set_ylabel("Mbit/s", color=_RATE)
    axes.set_title(trace.name, loc="left", fontsize="medium")
    axes.spines[["top", "right"]].set_visible(False)
    if trace.delays_ms is not None:
        right = axes.twinx()
        right.stairs(trace.delays_ms, [*trace.times_s, trace.period_s], color=_DELAY, linewidth=1.0, baseline=None)
        right.set_ylabel("one-way delay, ms", color=_DELAY)
        right.set_ylim(bottom=0)
        right.spines[["top", "left"]].set_visible(False)
    return figure


def _outages(trace: Trace) -> list[tuple[float, float]]:
    """Return begin and end of each outage; rows that touch make one."""
    spans: list[tuple[float, float]] = []
    ends_s = (*trace.times_s[1:], trace.period_s)
    for start_s, end_s, rate_mbps in zip(trace.times_s, ends_s, trace.rates_mbps, strict=True):
        if rate_mbps == 0 and spans and spans[-1][1] == start_s:
            spans[-1] = (spans[-1][0], end_s)
        elif rate_mbps == 0:
            spans.append((start_s, end_s))
    return spans
