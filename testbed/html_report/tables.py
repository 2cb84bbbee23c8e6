"""The figures that stand on the page as text: each with the place in ``summary.json`` that it comes from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from testbed.explain import explain_method
from testbed.metrics import STAGES, RequestRow
from testbed.result_table import COLUMNS, met_slo
from testbed.run_files import RunFiles

# SLOs, as multiples of the configured one, at which the attainment is listed.
_SLO_FACTORS = (0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0)
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
    """

    text: str
    value: float | None = None
    pointer: str = ""


@dataclass(frozen=True)
class MethodRow:
    """A row of cells about a method; ``place`` is the method's in the run's list."""

    name: str
    place: int
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
    rows = []
    for place, (name, figures) in enumerate(summary["methods"].items()):
        cells = [Figure(column.text(figures), column.value(figures), _pointer(name, column.path)) for column in COLUMNS]
        rows.append(MethodRow(name, place, (Figure(met_slo(figures)), *cells)))
    return Table(("method", "met SLO", *(column.heading for column in COLUMNS)), tuple(rows))


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


def attainment_table(run: RunFiles) -> Table:
    """Return which share of the issued requests had their first token within multiples of the objective."""
    slo_ms = run.summary["slo"]["ttft_ms"]
    rows = []
    for place, name in enumerate(run.summary["methods"]):
        issued = [row for row in run.requests if row.method == name]
        rows.append(MethodRow(name, place, tuple(_attainment(issued, factor * slo_ms) for factor in _SLO_FACTORS)))
    return Table(("method", *(f"{factor * slo_ms / 1e3:.4g} s" for factor in _SLO_FACTORS)), tuple(rows))


def _attainment(issued: Sequence[RequestRow], slo_ms: float) -> Figure:
    if not issued:
        return Figure("–")
    met = sum(row.ttft_ms is not None and row.ttft_ms <= slo_ms for row in issued)
    return Figure(f"{met / len(issued):.0%}", met / len(issued))


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
