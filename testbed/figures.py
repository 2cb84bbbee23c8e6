"""Figures of a run for a paper: PDF, one column wide, text as text, colour never alone."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.backends.backend_pdf import PdfPages
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from testbed.metrics import STAGES, RequestRow
from testbed.palette import STAGE_COLOURS, method_style
from testbed.run_files import RunFiles
from testbed.whole_file import replacing

_COLUMN_INCHES = 3.35  # of the two-column formats of ACM, IEEE and USENIX
_STYLE = {
    "font.size": 8,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.linewidth": 0.3,
    "hatch.linewidth": 0.4,
    "legend.frameon": False,
    "legend.fontsize": 7,
    "lines.linewidth": 1.4,
    "lines.markersize": 4,
    "pdf.fonttype": 42,  # outlines that submission systems accept
}
_HATCHES = dict(zip(STAGES, ("", "....", "", "\\\\\\\\", "////", "xxxx"), strict=True))
# KL below this is rounding, and is drawn at the foot of the logarithmic axis
_NO_HARM = 1e-6


def write_pdf(run: RunFiles, path: Path) -> None:
    """Write one PDF file with a page for each figure."""
    with mpl.rc_context(_STYLE), replacing(path) as scratch, PdfPages(scratch, metadata=_metadata(run)) as pages:
        for draw in _FIGURES.values():
            pages.savefig(draw(run))


def write_figures(run: RunFiles, folder: Path) -> None:
    """Write a PDF file for each figure into ``folder``, which is made if need be."""
    folder.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context(_STYLE):
        for name, draw in _FIGURES.items():
            with replacing(folder / f"{name}.pdf") as scratch:
                draw(run).savefig(scratch, format="pdf", metadata=_metadata(run))


def _metadata(run: RunFiles) -> dict[str, Any]:
    # no date: the same run makes the same file
    commit = run.manifest.get("git", {}).get("commit") or "no git"
    return {"Title": f"{run.path.resolve().name}, commit {commit}", "CreationDate": None}


def _new(height_inches: float) -> tuple[Figure, Any]:
    figure = Figure(figsize=(_COLUMN_INCHES, height_inches), layout="constrained")
    axes = figure.add_subplot()
    axes.set_axisbelow(True)
    axes.grid(visible=True)
    return figure, axes


def _issued(run: RunFiles) -> list[tuple[str, int, list[RequestRow]]]:
    """Name, place and issued requests of each method."""
    return [
        (name, place, [row for row in run.requests if row.method == name])
        for place, name in enumerate(run.summary["methods"])
    ]


def _ttfts_s(rows: Sequence[RequestRow]) -> list[float]:
    return sorted(row.ttft_ms / 1e3 for row in rows if row.ttft_ms is not None)


def _dashes(place: int) -> Any:
    dash = method_style(place).dash
    # SVG counts pixels, matplotlib widths of the line
    return (0, tuple(float(part) / 1.6 for part in dash.split())) if dash else "-"


def _curves(axes: Any, run: RunFiles, first_s: float, last_s: float) -> None:
    """A step at the TTFT of each request; those without a first token keep the curve below 1."""
    for name, place, rows in _issued(run):
        ttfts_s = _ttfts_s(rows)
        shares = [count / len(rows) for count in range(len(ttfts_s) + 1)]
        axes.step(
            [first_s, *ttfts_s, last_s],
            [*shares, shares[-1]],
            where="post",
            color=method_style(place).colour,
            linestyle=_dashes(place),
            label=name,
        )
    axes.set_ylim(0, 1.04)
    axes.set_xlim(first_s, last_s)


def _mark_slo(axes: Any, run: RunFiles) -> None:
    slo_s = run.summary["slo"]["ttft_ms"] / 1e3
    axes.axvline(slo_s, color="black", linestyle="--", linewidth=0.8)
    axes.annotate(
        f"SLO {slo_s:g} s",
        (slo_s, 1.0),
        (2, 1),
        xycoords=("data", "axes fraction"),
        textcoords="offset points",
        fontsize=7,
    )


def _longest_s(run: RunFiles) -> float:
    return max([float(run.summary["slo"]["ttft_ms"]) / 1e3, *_ttfts_s(run.requests)])


def _draw_distribution(run: RunFiles) -> Figure:
    figure, axes = _new(2.2)
    _curves(axes, run, 0.0, 1.04 * _longest_s(run))
    _mark_slo(axes, run)
    axes.set_xlabel("TTFT, s")
    axes.set_ylabel("share of issued requests")
    figure.legend(loc="outside upper center", ncols=4)
    return figure


def _draw_attainment(run: RunFiles) -> Figure:
    figure, axes = _new(2.2)
    slo_s = run.summary["slo"]["ttft_ms"] / 1e3
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter(NullFormatter())
    _curves(axes, run, min([slo_s / 2, *(0.9 * ttft_s for ttft_s in _ttfts_s(run.requests))]), 2 * _longest_s(run))
    for _, place, rows in _issued(run):
        met = sum(not row.violation for row in rows)
        style = method_style(place)
        axes.plot([slo_s], [met / len(rows)], marker=style.marker, color=style.colour, linestyle="", clip_on=False)
    _mark_slo(axes, run)
    axes.set_xlabel("SLO on TTFT, s")
    axes.set_ylabel("SLO attainment")
    figure.legend(loc="outside upper center", ncols=4)
    return figure


def _draw_quality(run: RunFiles) -> Figure:
    figure, axes = _new(2.2)
    axes.set_yscale("log")
    for name, place, rows in _issued(run):
        measured = [row for row in rows if row.kl is not None]
        style = method_style(place)
        axes.plot(
            [row.bytes / 1e6 for row in measured],
            [max(row.kl, _NO_HARM) for row in measured if row.kl is not None],
            marker=style.marker,
            color=style.colour,
            linestyle="",
            fillstyle="none",
            clip_on=False,
            label=name,
        )
    axes.set_xlim(left=0)
    axes.set_xlabel("received per request, MB")
    axes.set_ylabel(f"KL, nats (0 at {_NO_HARM:g})")
    figure.legend(loc="outside upper center", ncols=4)
    return figure


def _draw_stages(run: RunFiles) -> Figure:
    methods = run.summary["methods"]
    figure, axes = _new(0.9 + 0.28 * len(methods))
    axes.grid(visible=False, axis="y")
    for place, figures in enumerate(methods.values()):
        left_s = 0.0
        for stage in STAGES:
            spent_s = (figures["stages_ms"][stage] or 0.0) / 1e3
            axes.barh(
                place,
                spent_s,
                left=left_s,
                height=0.6,
                color=STAGE_COLOURS[stage],
                hatch=_HATCHES[stage],
                edgecolor="white",
                linewidth=0.3,
                label=stage.replace("_", " ") if place == 0 else None,
            )
            left_s += spent_s
    axes.set_yticks(range(len(methods)), list(methods))
    axes.set_ylim(len(methods) - 0.5, -0.5)
    _mark_slo(axes, run)
    axes.set_xlabel("mean TTFT, s")
    figure.legend(loc="outside upper center", ncols=3)
    return figure


_FIGURES: dict[str, Callable[[RunFiles], Figure]] = {
    "ttft": _draw_distribution,
    "attainment": _draw_attainment,
    "quality": _draw_quality,
    "stages": _draw_stages,
}
