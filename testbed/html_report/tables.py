"""The figures that stand on the page as text: each with the place in ``summary.json`` that it comes from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from testbed.explain import explain_method
from testbed.metrics import STAGES, RequestRow
from testbed.result_table import REFERENCE, SCORE, Column, main_columns, met_slo
from testbed.run_files import RunFiles

MAX_LISTED_REQUESTS = 400


@dataclass(frozen=True)
class Figure:
    """A cell of a table.

    Parameters
    ----------
    text : str
        As shown.
    value : float or None
        Unrounded, in the unit of its source.
    pointer : str
        JSON pointer into ``summary.json``; empty for what is not there.
    interval : tuple of Figure
        The two bounds of its 95 % interval; empty where there is none.
    """

    text: str
    value: float | None = None
    pointer: str = ""
    interval: tuple["Figure", ...] = ()


@dataclass(frozen=True)
class MethodRow:
    """A row of cells about a method; ``place`` is the method's in the run's list, None for what is no method."""

    name: str
    place: int | None
    cells: tuple[Figure, ...]


@dataclass(frozen=True)
class Table:
    """Headings, the first of them over the method's name, rows, and the headings of columns of words."""

    headings: tuple[str, ...]
    rows: tuple[MethodRow, ...]
    prose: tuple[str, ...] = ()


def verdict_line(summary: Mapping[str, Any]) -> str:
    """Say in one sentence which method met the objective how often, the best first."""
    slo_s = summary["slo"]["ttft_ms"] / 1e3
    ranked = sorted(summary["methods"].items(), key=lambda item: (item[1]["slo_violation_rate"], -item[1]["requests"]))
    parts = []
    for outcome, group in groupby(ranked, key=lambda item: _outcome(item[1])):
        names = [name for name, _ in group]
        parts.append(f"{_enumerate(names)} in {outcome}{' each' if len(names) > 1 else ''}")
    return f"The SLO of {slo_s:g} s was met by {'; by '.join(parts)}."


def _outcome(figures: Mapping[str, Any]) -> str:
    return f"{met_slo(figures)} requests ({1 - figures['slo_violation_rate']:.0%})"


def _enumerate(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def main_table(summary: Mapping[str, Any]) -> Table:
    """Return the table that the terminal and ``report.md`` show."""
    columns = main_columns(summary)
    table = method_table(summary, columns)
    rows = [
        MethodRow(row.name, row.place, (Figure(met_slo(figures)), *row.cells))
        for row, figures in zip(table.rows, summary["methods"].values(), strict=True)
    ]
    if SCORE in columns:
        reference = summary["reference"]
        score = Figure(SCORE.text(reference), SCORE.value(reference), f"/reference/{SCORE.path}")
        rows.append(MethodRow(REFERENCE, None, (*[Figure("–")] * len(columns), score)))
    return Table((table.headings[0], "met SLO", *table.headings[1:]), tuple(rows))


def method_table(summary: Mapping[str, Any], columns: Sequence[Column]) -> Table:
    """Return a table of these columns, one row a method."""
    rows = tuple(
        MethodRow(name, place, tuple(_column_figure(name, figures, column) for column in columns))
        for place, (name, figures) in enumerate(summary["methods"].items())
    )
    return Table(("method", *(column.heading for column in columns)), rows)


def _column_figure(name: str, figures: Mapping[str, Any], column: Column) -> Figure:
    value = column.value(figures)
    interval = tuple(
        Figure(column.number(bound), bound, _pointer(name, f"{column.interval}.{place}"))
        for place, bound in enumerate(column.bounds(figures))
    )
    pointer = "" if value is None else _pointer(name, column.path)
    return Figure(column.value_text(figures), value, pointer, interval)


def stage_table(summary: Mapping[str, Any]) -> Table:
    """Return the mean of each stage by method, in seconds, and their sum."""
    rows = []
    for place, (name, figures) in enumerate(summary["methods"].items()):
        paths = [*((f"stages_ms.{stage}", figures["stages_ms"][stage]) for stage in STAGES)]
        paths.append(("ttft_ms.mean", figures["ttft_ms"]["mean"]))
        cells = (Figure(_seconds(value_ms), value_ms, _pointer(name, path)) for path, value_ms in paths)
        rows.append(MethodRow(name, place, tuple(cells)))
    return Table(("method", *(f"{stage.replace('_', ' ')} s" for stage in STAGES), "TTFT s"), tuple(rows))


def level_table(summary: Mapping[str, Any], levels: Sequence[str]) -> Table:
    """Return how many chunks of each method came in which encoding."""
    rows = []
    for place, (name, figures) in enumerate(summary["methods"].items()):
        cells = []
        for level in levels:
            count = figures["levels"].get(level)
            pointer = "" if count is None else _pointer(name, f"levels.{level}")
            cells.append(Figure("–" if count is None else str(count), count, pointer))
        rows.append(MethodRow(name, place, tuple(cells)))
    return Table(("method", *levels), tuple(rows))


def attainment_table(summary: Mapping[str, Any]) -> Table:
    """Return which share of the issued requests had their first token within multiples of the objective."""
    slo_s = summary["slo"]["ttft_ms"] / 1e3
    # a run of an earlier release has no such entry
    sweeps = {name: figures.get("slo_attainment", []) for name, figures in summary["methods"].items()}
    rows = tuple(
        MethodRow(name, place, tuple(_attainment(name, number, point) for number, point in enumerate(sweep)))
        for place, (name, sweep) in enumerate(sweeps.items())
    )
    scales = [point["scale"] for point in next(iter(sweeps.values()))]
    return Table(("method", *(f"{scale * slo_s:.4g} s" for scale in scales)), rows)


def _attainment(name: str, number: int, point: Mapping[str, Any]) -> Figure:
    path, share = f"slo_attainment.{number}", point["attainment"]
    interval = tuple(
        Figure(f"{100 * bound:.0f}", bound, _pointer(name, f"{path}.interval.{place}"))
        for place, bound in enumerate(point["interval"])
    )
    return Figure(f"{share:.0%}", share, _pointer(name, f"{path}.attainment"), interval)


def request_table(run: RunFiles) -> Table:
    """Return a row for each serving, the first ``MAX_LISTED_REQUESTS`` of them, by request."""
    places = {name: place for place, name in enumerate(run.summary["methods"])}
    known = [row for row in run.requests if row.method in places]
    listed = sorted(known, key=lambda row: (row.request, places[row.method]))[:MAX_LISTED_REQUESTS]
    headings = ("method", "request", "context", "outcome", "TTFT s", "MB", "link Mbit/s", "KL", "agreement", "chunks")
    rows = tuple(MethodRow(row.method, places[row.method], _request_cells(row)) for row in listed)
    return Table(headings, rows, prose=("context", "outcome", "chunks"))


def _request_cells(row: RequestRow) -> tuple[Figure, ...]:
    outcome = ("missed" if row.violation else "met") if row.status == "ok" else f"{row.status}: {row.error}"
    return (
        Figure(str(row.request)),
        Figure(row.context),
        Figure(outcome),
        Figure(_seconds(row.ttft_ms), row.ttft_ms),
        Figure(f"{row.bytes / 1e6:.2f}", row.bytes),
        Figure(_number(row.link_mbps, 1), row.link_mbps),
        Figure(_number(row.kl, 4), row.kl),
        Figure(_number(row.agreement, 3), row.agreement),
        Figure(", ".join(f"{count} × {name}" for name, count in row.levels.items()) or "–"),
    )


def reasons(summary: Mapping[str, Any]) -> list[tuple[str, int, str]]:
    """Name, place and explanation of each method."""
    slo_ms = summary["slo"]["ttft_ms"]
    return [
        (name, place, explain_method(name, figures, slo_ms))
        for place, (name, figures) in enumerate(summary["methods"].items())
    ]


def _pointer(method: str, path: str) -> str:
    steps = ["methods", method, *path.split(".")]
    return "".join("/" + step.replace("~", "~0").replace("/", "~1") for step in steps)


def _seconds(value_ms: float | None) -> str:
    return "–" if value_ms is None else f"{value_ms / 1e3:.2f}"


def _number(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:.{digits}f}"
