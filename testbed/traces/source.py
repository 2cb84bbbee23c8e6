"""The text of a trace file: bytes from outside become lines and numbers, or an error that names the place."""

import csv
import itertools
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from testbed.errors import TraceError
from testbed.traces.text_stream import MAX_BYTES, TraceData, stream_text

# Rows of one link that are held at once: 23 days of one a second.
MAX_ROWS = 2_000_000
_HEAD_LINES = 20
_SHOWN_CHARACTERS = 60
_MAX_DIGITS = 20


class Line(NamedTuple):
    """One line that holds something, without the spaces around it."""

    number: int
    text: str


class Row(NamedTuple):
    """One row of a CSV file."""

    number: int
    cells: dict[str, str]


class Source:
    """Text of a trace file: UTF-8, perhaps with a byte order mark, CRLF or gzip around it; read anew by each pass.

    Parameters
    ----------
    data : bytes or Path
        The file as it lies, or what it holds.
    path : Path
        Stands in every error's text.

    Raises
    ------
    TraceError
        As ``stream_text`` has it, or no text at all.
    """

    def __init__(self, data: TraceData, path: Path) -> None:
        self.path, self._data, self._is_short = path, data, False
        self._head = list(itertools.islice(self._lines(), _HEAD_LINES))
        if not self._head:
            raise TraceError(f"trace {path}: the file is empty")

    def text(self) -> str:
        """Return all of it, with ``\\n`` for each line's end."""
        self._check_length()
        return "".join(stream_text(self._data, self.path))

    def lines(self, most: int = MAX_ROWS) -> Iterator[Line]:
        """Yield the lines that are not blank, one at a time; more than ``most`` are refused, or 256 MiB of text."""
        # at once, and not when all of that has been read
        self._check_length()
        for count, line in enumerate(self._lines(), start=1):
            if count > most:
                raise self.too_many_rows(most)
            yield line

    def too_many_rows(self, most: int = MAX_ROWS) -> TraceError:
        """Return the refusal of more rows than are held at once."""
        return TraceError(f"trace {self.path}: more than {most} rows; cut out the part to be replayed")

    def head(self, count: int = _HEAD_LINES) -> list[Line]:
        """Return the first lines that are not blank, at most 20, by which a format is recognised."""
        return self._head[:count]

    def header(self) -> list[str]:
        """Return the cells of the first line."""
        return split_csv(self._head[0].text)

    def rows(self) -> Iterator[Row]:
        """Yield the rows of a CSV file, whose first line names its columns."""
        return self._rows(self.lines(), None)

    def rows_of_many_links(self, columns: Sequence[str] | None = None) -> Iterator[Row]:
        """Yield the rows of a CSV file of any length, for readers that keep few of them.

        The first line names the columns unless ``columns`` does.
        """
        return self._rows(self._lines(), columns)

    def _rows(self, lines: Iterator[Line], columns: Sequence[str] | None) -> Iterator[Row]:
        names = list(columns) if columns is not None else split_csv(next(lines).text)
        for number, text in lines:
            cells = split_csv(text)
            if len(cells) != len(names):
                raise TraceError(f"{self.place(number)}: {len(cells)} values for the {len(names)} columns")
            yield Row(number, dict(zip(names, cells, strict=True)))

    def _lines(self) -> Iterator[Line]:
        number = 0
        for block in stream_text(self._data, self.path):
            for line in block.removesuffix("\n").split("\n"):
                number += 1
                if text := line.strip():
                    yield Line(number, text)

    def _check_length(self) -> None:
        """Refuse more text than one link may have; known after the first time."""
        if self._is_short:
            return
        left = MAX_BYTES
        for block in stream_text(self._data, self.path):
            left -= len(block)
            if left < 0:
                raise TraceError(
                    f"trace {self.path}: more than {MAX_BYTES >> 20} MiB of text; cut out the part to be replayed"
                )
        self._is_short = True

    def place(self, line: int, column: str | None = None) -> str:
        """Return the words by which an error's text names a place."""
        return f"trace {self.path}, line {line}" + ("" if column is None else f", {column}")

    def cell(self, row: Row, column: str) -> str:
        """Return a cell of a CSV row."""
        if column not in row.cells:
            raise TraceError(f"trace {self.path}, line 1: there is no column {column!r}")
        return row.cells[column]

    def number(self, row: Row, column: str) -> float:
        """Return the number in a cell of a CSV row, zero or more."""
        return parse_number(self.cell(row, column), self.place(row.number, column))

    def whole_number(self, row: Row, column: str) -> int:
        """Return the whole number in a cell of a CSV row, exact at any length up to twenty digits."""
        text = self.cell(row, column)
        if not (text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS):
            raise TraceError(f"{self.place(row.number, column)}: {shown(text)} is not a whole number")
        return int(text)


def parse_number(cell: str, place: str) -> float:
    """Return a finite number, zero or more."""
    try:
        value = float(cell)
    except ValueError:
        raise TraceError(f"{place}: {shown(cell)} is not a number") from None
    # float() takes 1_000 and the digits of all scripts as well: in a data file that is a slip
    if not math.isfinite(value) or "_" in cell or not cell.isascii():
        raise TraceError(f"{place}: {cell.strip()} is not a finite number")
    if value < 0:
        raise TraceError(f"{place}: {cell.strip()} is negative")
    return value


def is_number(cell: str) -> bool:
    """Return whether a cell would be a number, sign and all."""
    try:
        float(cell)
    except ValueError:
        return False
    return True


def split_csv(text: str) -> list[str]:
    """Return the cells of one CSV line, without the spaces around them."""
    cells = next(csv.reader([text])) if '"' in text and len(text) <= csv.field_size_limit() else text.split(",")
    return [cell.strip() for cell in cells]


def shown(text: str) -> str:
    """Return a text as an error shows it, cut where it is long."""
    return repr(text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 3] + "...")
