"""What an importer is."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from testbed.errors import TraceError
from testbed.traces.recording import Recording
from testbed.traces.source import MAX_ROWS, Row, Source, shown

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


def pick_series(source: Source, column: str, wanted: str | None, columns: Sequence[str] | None = None) -> Iterator[Row]:
    """Yield the rows of one series, of a CSV file of any length; where it has several, one must be named.

    Parameters
    ----------
    source : Source
        The file.
    column : str
        Tells the series apart.
    wanted : str or None
        Which; None where there is but one.
    columns : sequence of str or None
        Names of the columns, where the first line does not have them.

    Raises
    ------
    TraceError
        No such series, or several and none named (the message lists some), or one with more rows than can be held.
    """
    names: list[str] = []
    kept = 0
    for row in source.rows_of_many_links(columns):
        name = source.cell(row, column)
        if len(names) <= _LISTED_SERIES and name not in names:
            names.append(name)
        if wanted is None and len(names) > _LISTED_SERIES:
            break
        if name == wanted or (wanted is None and len(names) == 1):
            kept += 1
            if kept > MAX_ROWS:
                raise source.too_many_rows()
            yield row
    if (wanted is None and len(names) > 1) or (wanted is not None and kept == 0):
        raise _no_series(source, column, wanted, names)


def _no_series(source: Source, column: str, wanted: str | None, names: list[str]) -> TraceError:
    listed = ", ".join(shown(name).strip("'") for name in names[:_LISTED_SERIES])
    count = f"{len(names)} links" if len(names) <= _LISTED_SERIES else f"more than {_LISTED_SERIES} links"
    found = f"trace {source.path}: {count}, told apart by {column}: {listed}"
    if len(names) > _LISTED_SERIES:
        found += ", ..."
    if wanted is not None:
        return TraceError(f"{found}; none of them is {shown(wanted)}")
    return TraceError(f"{found}; choose one with --series {column.upper()}")


def has_columns(*names: str) -> Callable[[Source], bool]:
    """Return a check for a CSV header that has these columns among others."""
    return lambda source: set(names) <= set(source.header())
