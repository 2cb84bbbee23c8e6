"""A bandwidth trace: the capacity of a link over time, loaded from CSV and checked before any use."""

import csv
import hashlib
import itertools
import math
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cachegen import UnknownNameError
from testbed.errors import TraceError

TRACES_DIR = Path(__file__).resolve().parent.parent / "traces"
COLUMNS = ("time_s", "rate_mbps", "delay_ms")
BYTES_PER_MBIT = 125_000

# What a link makes of less, an outage too. HTB keeps a token debt as time: at a lower rate, one frame sent in an outage
# would shut the link long after its end.
RATE_FLOOR_MBPS = 0.5

# Beyond these a value is a slip of unit, not a link: 100 Gbit/s, 10 s one way, steps a timer cannot keep.
MAX_RATE_MBPS = 100_000.0
MAX_DELAY_MS = 10_000.0
MIN_STEP_S = 0.001
SINGLE_ROW_PERIOD_S = 1.0


@dataclass(frozen=True)
class TraceStep:
    """One constant piece of a replay, ``start_s`` seconds after the replay's own beginning."""

    start_s: float
    rate_mbps: float
    delay_ms: float | None


@dataclass(frozen=True)
class Trace:
    """A capacity that is constant from each stamp to the next and repeats every ``period_s``.

    Parameters
    ----------
    name : str
        File name without its suffix.
    sha256 : str
        Hash of the file's bytes, in hex.
    times_s, rates_mbps : tuple of float
        Row i's rate holds from ``times_s[i]`` until ``times_s[i + 1]``; the first stamp is 0. The rate counts
        whole Ethernet frames (payload and all headers). 0 is an outage.
    delays_ms : tuple of float or None
        One-way propagation delay of each row; None if the file has no such column.
    period_s : float
        The last row lasts as long as the row before it; then the trace begins again. A single row means a
        constant link.
    """

    name: str
    sha256: str
    times_s: tuple[float, ...]
    rates_mbps: tuple[float, ...]
    delays_ms: tuple[float, ...] | None
    period_s: float

    def rate_at_mbps(self, time_s: float) -> float:
        """Return the capacity at ``time_s`` (any real number; the trace repeats both ways)."""
        return self.rates_mbps[self._row_at(time_s)]

    def capacity_bytes(self, start_s: float, end_s: float) -> float:
        """Return the bytes that the link can carry from ``start_s`` to ``end_s``, the exact integral."""
        if end_s < start_s:
            raise TraceError(f"trace {self.name}: capacity from {start_s} s back to {end_s} s")
        return (self._integral_mbit(end_s) - self._integral_mbit(start_s)) * BYTES_PER_MBIT

    def steps(self, offset_s: float) -> Iterator[TraceStep]:
        """Yield the steps of a replay that begins ``offset_s`` into the trace; endless."""
        into_s = offset_s % self.period_s
        first = self._row_at(into_s)
        yield self._step(first, 0.0)
        rows = len(self.times_s)
        for count in itertools.count(first + 1):
            repeats, row = divmod(count, rows)
            # a product, not a running sum: the millionth step starts on time too
            yield self._step(row, repeats * self.period_s + self.times_s[row] - into_s)

    def _step(self, row: int, start_s: float) -> TraceStep:
        delay_ms = None if self.delays_ms is None else self.delays_ms[row]
        return TraceStep(start_s, self.rates_mbps[row], delay_ms)

    def _row_at(self, time_s: float) -> int:
        return bisect_right(self.times_s, time_s % self.period_s) - 1

    def _integral_mbit(self, time_s: float) -> float:
        """Integral from 0 to ``time_s``; negative times give negative values."""
        repeats, rest_s = divmod(time_s, self.period_s)
        ends_s = (*self.times_s[1:], self.period_s)
        whole = part = 0.0
        for start_s, end_s, rate_mbps in zip(self.times_s, ends_s, self.rates_mbps, strict=True):
            whole += (end_s - start_s) * rate_mbps
            part += max(0.0, min(end_s, rest_s) - start_s) * rate_mbps
        return repeats * whole + part


def trace_names() -> list[str]:
    """Return the names of the traces that come with the project."""
    return sorted(path.stem for path in TRACES_DIR.glob("*.csv"))


def is_trace_name(text: str) -> bool:
    """Return whether a text means a shipped trace; everything else is a path."""
    return "/" not in text and not Path(text).suffix


def load_trace(name_or_path: str | Path) -> Trace:
    """Load a trace by the name of a shipped one (``lte``) or by the path of a CSV file.

    A text without a slash and without a suffix is a name; everything else is a path.

    Raises
    ------
    UnknownNameError
        No shipped trace has that name; the message lists those there are.
    TraceError
        The file cannot be read, or a value in it cannot be replayed.
    """
    text = str(name_or_path)
    path = TRACES_DIR / f"{text}.csv" if is_trace_name(text) else Path(text)
    if is_trace_name(text) and not path.is_file():
        known = ", ".join(trace_names()) or "none"
        raise UnknownNameError(f"no trace named {text!r}; known: {known}; a file needs its path, as in ./{text}.csv")
    try:
        data = path.read_bytes()
    except OSError as error:
        known = ", ".join(trace_names()) or "none"
        raise TraceError(f"trace {path}: {error.strerror}; traces known by name: {known}") from error
    return parse_trace(data, path)


def parse_trace(data: bytes, path: Path) -> Trace:
    """Parse and check the bytes of a trace file; ``path`` gives its name and stands in error texts."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise TraceError(f"trace {path}: not UTF-8 text: byte {error.start} is {data[error.start]:#04x}") from error
    reader = csv.reader(text.splitlines())
    try:
        lines = [(reader.line_num, cells) for cells in reader if cells]
    except csv.Error as error:
        raise TraceError(f"trace {path}, line {reader.line_num}: {error}") from error
    columns = _check_header(lines, path)
    rows = [_parse_row(cells, columns, f"trace {path}, line {line}") for line, cells in lines[1:]]
    if not rows:
        raise TraceError(f"trace {path}: a header and no rows")
    _check_times([row[0] for row in rows], [line for line, _ in lines[1:]], path)
    if not any(row[1] for row in rows):
        raise TraceError(f"trace {path}: every rate_mbps is 0, nothing could ever arrive")
    times_s = tuple(row[0] for row in rows)
    return Trace(
        name=path.stem,
        sha256=hashlib.sha256(data).hexdigest(),
        times_s=times_s,
        rates_mbps=tuple(row[1] for row in rows),
        delays_ms=tuple(row[2] for row in rows) if len(columns) == len(COLUMNS) else None,
        period_s=2 * times_s[-1] - times_s[-2] if len(times_s) > 1 else SINGLE_ROW_PERIOD_S,
    )


def _check_header(lines: list[tuple[int, list[str]]], path: Path) -> list[str]:
    header = [cell.strip() for cell in lines[0][1]] if lines else []
    if header not in (list(COLUMNS), list(COLUMNS[:2])):
        found = ",".join(header) if header else "nothing"
        raise TraceError(f"trace {path}, line 1: the header must be time_s,rate_mbps[,delay_ms], not {found!r}")
    return header


def _parse_row(cells: list[str], columns: list[str], place: str) -> list[float]:
    if len(cells) != len(columns):
        raise TraceError(f"{place}: {len(cells)} values for the {len(columns)} columns {','.join(columns)}")
    row = []
    for column, cell in zip(columns, cells, strict=True):
        value = _parse_number(cell, f"{place}, {column}")
        if value < 0:
            raise TraceError(f"{place}, {column}: {cell.strip()} is negative")
        row.append(value)
    if row[1] > MAX_RATE_MBPS:
        raise TraceError(f"{place}, rate_mbps: {row[1]:g} is above {MAX_RATE_MBPS:g}; the unit is Mbit/s")
    if len(row) == len(COLUMNS) and row[2] > MAX_DELAY_MS:
        raise TraceError(f"{place}, delay_ms: {row[2]:g} is above {MAX_DELAY_MS:g}; the unit is ms, one way")
    return row


def _parse_number(cell: str, place: str) -> float:
    try:
        value = float(cell)
    except ValueError:
        raise TraceError(f"{place}: {cell!r} is not a number") from None
    # float() takes 1_000 as well: in a data file that is a slip
    if not math.isfinite(value) or "_" in cell:
        raise TraceError(f"{place}: {cell.strip()} is not a finite number")
    return value


def _check_times(times_s: list[float], lines: list[int], path: Path) -> None:
    if times_s[0] != 0:
        raise TraceError(f"trace {path}, line {lines[0]}, time_s: the first stamp must be 0, not {times_s[0]:g}")
    for line, before, now in zip(lines[1:], times_s, times_s[1:], strict=False):
        if now <= before:
            raise TraceError(f"trace {path}, line {line}, time_s: {now:g} does not come after {before:g}")
        # a hair of tolerance: 0.3 - 0.299 is a little less than a millisecond in binary
        if now - before < MIN_STEP_S * (1 - 1e-6):
            raise TraceError(f"trace {path}, line {line}, time_s: a step of {now - before:g} s is below {MIN_STEP_S} s")
