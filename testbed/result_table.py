"""The main table of a run: which figures of a method it shows, how they are named and rounded."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


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
    """

    heading: str
    path: str
    factor: float
    digits: int
    suffix: str = ""

    def value(self, figures: Mapping[str, Any]) -> float | None:
        """Return the figure in its own unit; None where nothing was measured."""
        found: Any = figures
        for part in self.path.split("."):
            found = found[part]
        return None if found is None else float(found)

    def text(self, figures: Mapping[str, Any]) -> str:
        """Return the figure in the heading's unit, rounded."""
        value = self.value(figures)
        return "–" if value is None else f"{value * self.factor:.{self.digits}f}{self.suffix}"


COLUMNS = (
    Column("violation rate", "slo_violation_rate", 100, 0, "%"),
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


def met_slo(figures: Mapping[str, Any]) -> str:
    """Say how many of the issued requests met the objective."""
    return f"{figures['requests'] - figures['violations']} of {figures['requests']}"


def result_table(summary: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Headings and rows of the main table, one row a method; where answers are scored, the uncompressed cache's too."""
    # a run of an earlier release has no such entry
    reference = summary.get("reference")
    columns = (*COLUMNS, SCORE) if reference else COLUMNS
    rows = [
        [name, met_slo(figures), *(column.text(figures) for column in columns)]
        for name, figures in summary["methods"].items()
    ]
    if reference:
        rows.append([REFERENCE, "–", *["–"] * len(COLUMNS), SCORE.text(reference)])
    return ["method", "met SLO", *(column.heading for column in columns)], rows
