"""The text of a trace file: bytes from outside become lines and numbers, or an error that names the place."""

import csv
import io
import math
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from testbed.errors import TraceError

MAX_BYTES = 256 << 20
_GZIP_MAGIC = b"\x1f\x8b"
_AS_GZIP = 16 + zlib.MAX_WBITS
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
    """Text of a trace file: UTF-8, perhaps with a byte order mark, CRLF or gzip around it.

    Parameters
    ----------
    data : bytes
        The file as it lies.
    path : Path
        Stands in every error's text.

    Raises
    ------
    TraceError
        Not UTF-8 text, a broken gzip file, more than 256 MiB of text, or no text at all.
    """

    def __init__(self, data: bytes, path: Path) -> None:
        self.path = path
        plain = _gunzip(data, path) if data.startswith(_GZIP_MAGIC) else data
        if len(plain) > MAX_BYTES:
            raise TraceError(f"trace {path}: more than {MAX_BYTES >> 20} MiB of text; cut out the part to be replayed")
        try:
            self.text = plain.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise TraceError(f"trace {path}: not UTF-8 text: byte {error.start} is {plain[error.start]:#04x}") from None
        if not self.text.strip():
            raise TraceError(f"trace {path}: the file is empty")

    def lines(self) -> Iterator[Line]:
        """Yield the lines that are not blank, one at a time: a list of them would take many times the text."""
        for number, line in enumerate(io.StringIO(self.text, newline=None), start=1):
            if text := line.strip():
                yield Line(number, text)

    def head(self, count: int = 20) -> list[Line]:
        """Return the first lines that are not blank, by which a format is recognised."""
        return [line for line, _ in zip(self.lines(), range(count), strict=False)]

    def header(self) -> list[str]:
        """Return the cells of the first line."""
        return split_csv(self.head(1)[0].text)

    def rows(self, columns: Sequence[str] | None = None) -> Iterator[Row]:
        """Yield the rows of a CSV file, whose first line names its columns unless ``columns`` does."""
        lines = self.lines()
        names = list(columns) if columns is not None else split_csv(next(lines).text)
        for number, text in lines:
            cells = split_csv(text)
            if len(cells) != len(names):
                raise TraceError(f"{self.place(number)}: {len(cells)} values for the {len(names)} columns")
            yield Row(number, dict(zip(names, cells, strict=True)))

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
    # float() takes 1_000 as well: in a data file that is a slip
    if not math.isfinite(value) or "_" in cell:
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


def _gunzip(data: bytes, path: Path) -> bytes:
    """Return what a gzip file holds, up to a byte more than is accepted."""
    parts: list[bytes] = []
    try:
        # a file may be several members, one after the other
        while data.startswith(_GZIP_MAGIC):
            member = zlib.decompressobj(_AS_GZIP)
            parts.append(member.decompress(data, MAX_BYTES + 1 - sum(map(len, parts))))
            if not member.eof:
                if sum(map(len, parts)) > MAX_BYTES:
                    break
                raise TraceError(f"trace {path}: the gzip file ends early")
            data = member.unused_data
    except zlib.error as error:
        raise TraceError(f"trace {path}: a broken gzip file: {error}") from None
    return b"".join(parts)
