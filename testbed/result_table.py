"""The tables of a run: which figures of a method they show, how they are named and rounded."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from testbed.metrics import PERCENTILES
from testbed.slo import VIOLATION_CLASSES


@dataclass(frozen=True)
class Column:
    """A figure of ``summary["methods"][name]``.

    Parameters
    ----------
    heading : str
        With the unit.
    path : str
        Of the figure in the entry, its parts joined by dots.
    factor : float
        From the figure's unit to the heading's.
    digits : int
        Behind the point.
    suffix : str
        Behind the number.
    interval : str
        Path of the figure's 95 % interval; empty where there is none.
    """

    heading: str
    path: str
    factor: float
    digits: int
    suffix: str = ""
    interval: str = ""

    def value(self, figures: Mapping[str, Any]) -> float | None:
        """Return the figure in its own unit; None where nothing was measured or the release had no such figure."""
        found = _at(figures, self.path)
        return None if found is None else float(found)

    def bounds(self, figures: Mapping[str, Any]) -> tuple[float | None, ...]:
        """Return both bounds of the interval in the figure's unit; nothing where none of them is known."""
        found = _at(figures, self.interval) if self.interval else None
        return tuple(found) if found is not None and any(bound is not None for bound in found) else ()

    def number(self, value: float | None) -> str:
        """Return a figure or a bound in the heading's unit, rounded."""
        return "–" if value is None else f"{value * self.factor:.{self.digits}f}"

    def value_text(self, figures: Mapping[str, Any]) -> str:
        """Return the figure as it is shown, without its interval."""
        value = self.value(figures)
        return self.number(value) + (self.suffix if value is not None else "")

    def text(self, figures: Mapping[str, Any]) -> str:
        """Return the figure and, behind it, the interval in the same unit."""
        bounds = ", ".join(self.number(bound) for bound in self.bounds(figures))
        return self.value_text(figures) + (f" [{bounds}]" if bounds else "")


def _at(figures: Mapping[str, Any], path: str) -> Any:
    found: Any = figures
    for part in path.split("."):
        found = None if found is None else found.get(part)
    return found


_TABLE = (
    Column("violation rate", "slo_violation_rate", 100, 0, "%", "slo_violation_rate_interval"),
    Column("TTFT mean s", "ttft_ms.mean", 1e-3, 2),
    Column("p50 s", "ttft_ms.p50", 1e-3, 2),
    Column("p95 s", "ttft_ms.p95", 1e-3, 2),
    Column("MB", "bytes_mean", 1e-6, 2),
    Column("KL", "kl_mean", 1, 4),
    Column("agreement", "agreement_mean", 1, 3),
    Column("Δ perplexity", "dppl_mean", 1, 3),
)
SCORE = Column("score", "score_mean", 1, 2)
# the row that says what the model can do at all
REFERENCE = "uncompressed KV"
_VIOLATIONS = (
    *(Column(name.replace("_", " "), f"violation_classes.{name}", 1, 0) for name in VIOLATION_CLASSES),
    *(Column(name, f"violations_by_oracle.{name}", 1, 0) for name in ("avoidable", "infeasible")),
    Column("goodput 1/s", "goodput.requests_per_s", 1, 3),
    Column("goodput MB/s", "goodput.bytes_per_s", 1e-6, 3),
    Column("wasted MB", "wasted_bytes_mean", 1e-6, 3),
)
_VIOLATIONS_NOTE = (
    "Late: a first token after the SLO; failed, timed out, aborted: none. Avoidable: violations of requests that a "
    "rule with knowledge of the trace serves in time; infeasible: the others. Goodput: requests that met the SLO, and "
    "what they fetched, a second of serving. Wasted: received in vain, mean over all issued requests."
)
_FAIRNESS = Column("fairness", "fairness", 1, 3)
_FAIRNESS_NOTE = (
    " Fairness: Jain's index of how far each request's SLO was met; 1: all equally, 1/n: one of n alone was served."
)
TTFTS = tuple(
    Column(f"{name} s", f"ttft_ms.{name}", 1e-3, 2, interval=f"ttft_ms_interval.{name}")
    for name in ("mean", *PERCENTILES)
)


def main_columns(summary: Mapping[str, Any]) -> tuple[Column, ...]:
    """Return the columns of the main table: with scores where answers were scored."""
    # a run of an earlier release has no such entry
    return (*_TABLE, SCORE) if summary.get("reference") else _TABLE


def violation_columns(summary: Mapping[str, Any]) -> tuple[Column, ...]:
    """Return the columns on violations, goodput and waste: with fairness where requests shared the link."""
    return (*_VIOLATIONS, _FAIRNESS) if _has_fairness(summary) else _VIOLATIONS


def violations_note(summary: Mapping[str, Any]) -> str:
    """Say what these columns are."""
    return _VIOLATIONS_NOTE + (_FAIRNESS_NOTE if _has_fairness(summary) else "")


def _has_fairness(summary: Mapping[str, Any]) -> bool:
    return any(_FAIRNESS.value(figures) is not None for figures in summary["methods"].values())


def met_slo(figures: Mapping[str, Any]) -> str:
    """Say how many of the issued requests met the objective."""
    return f"{figures['requests'] - figures['violations']} of {figures['requests']}"


def result_table(summary: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Headings and rows of the main table, one row a method; where answers are scored, the uncompressed cache's too."""
    columns = main_columns(summary)
    headings, rows = method_table(summary, columns)
    for row, figures in zip(rows, summary["methods"].values(), strict=True):
        row.insert(1, met_slo(figures))
    if SCORE in columns:
        rows.append([REFERENCE, "–", *["–"] * len(_TABLE), SCORE.text(summary["reference"])])
    return [headings[0], "met SLO", *headings[1:]], rows


def method_table(summary: Mapping[str, Any], columns: Sequence[Column]) -> tuple[list[str], list[list[str]]]:
    """Headings and rows of a table of these columns, one row a method."""
    rows = [[name, *(column.text(figures) for column in columns)] for name, figures in summary["methods"].items()]
    return ["method", *(column.heading for column in columns)], rows
