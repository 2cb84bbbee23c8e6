"""What an importer is."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

from testbed.errors import TraceError
from testbed.traces.recording import Recording
from testbed.traces.source import Row, Source, shown

_LISTED_SERIES = 5


@dataclass(frozen=True)
class Importer:
    """Reader of one format.

    Parameters
    ----------
    summary : str
        What a file of this format holds, with units, in a line.
    mean : str
        How the mean of the trace follows from the file's values.
    recognises : callable
        Whether a file's first lines are of this format; exactly one importer must say so.
    read : callable
        Reads a file, or the one series of it that is named.
    series : str or None
        Column that tells apart the links that share a file; None where a file is one link.
    """

    summary: str
    mean: str
    recognises: Callable[[Source], bool]
    read: Callable[[Source, str | None], Recording]
    series: str | None = None


def pick_series(source: Source, rows: Iterator[Row], column: str, wanted: str | None) -> list[Row]:
    """Return the rows of one series; where a file has several, one must be named.

    Raises
    ------
    TraceError
        No such series, or several and none named; the message lists those there are.
    """
    series: dict[str, list[Row]] = {}
    for row in rows:
        series.setdefault(source.cell(row, column), []).append(row)
    if wanted in series:
        return series[wanted]
    if wanted is None and len(series) <= 1:
        return next(iter(series.values()), [])
    listed = ", ".join(islice(series, _LISTED_SERIES)) + (", ..." if len(series) > _LISTED_SERIES else "")
    found = f"trace {source.path}: {len(series)} links, told apart by {column}: {listed}"
    if wanted is not None:
        raise TraceError(f"{found}; none of them is {shown(wanted)}")
    raise TraceError(f"{found}; choose one with --series {column.upper()}")


def has_columns(*names: str) -> Callable[[Source], bool]:
    """Return a check for a CSV header that has these columns among others."""
    return lambda source: set(names) <= set(source.header())
