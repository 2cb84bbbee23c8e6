"""The file ``link.csv`` of a run: what each tenth of a second of each replay allowed and brought."""

import csv
import io
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from testbed.errors import RunFileError
from testbed.link_account import LinkRow
from testbed.run_text import read_text


@dataclass(frozen=True)
class ReplayOwner:
    """Whose a replay of the link is: a batch's or, in files without batches, a request's."""

    kind: str
    number: int
    method: str

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> "ReplayOwner":
        """Whose an entry of a file is; KeyError, TypeError or ValueError where it does not say."""
        kind = "batch" if "batch" in entry else "request"
        return cls(kind, int(entry[kind]), str(entry["method"]))


def read_link_rows(path: Path) -> Iterator[tuple[ReplayOwner, LinkRow]]:
    """Give whose each row is, and the row.

    Raises
    ------
    RunFileError
        The file cannot be read, or a row is none; the text names the line.
    """
    reader = csv.DictReader(io.StringIO(read_text(path), newline=""))
    try:
        for cells in reader:
            yield ReplayOwner.of(cells), _row(cells)
    except (KeyError, TypeError, ValueError, csv.Error) as error:
        place = f"{path}:{reader.line_num}"
        raise RunFileError(f"{place}: no row of a link's account: {type(error).__name__}: {error}") from error


def _row(cells: Mapping[str, str]) -> LinkRow:
    values = {field.name: float(cells[field.name]) for field in fields(LinkRow)}
    if not all(map(math.isfinite, values.values())):
        raise ValueError("a value is no number")
    return LinkRow(**values)
