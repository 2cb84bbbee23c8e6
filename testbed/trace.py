"""A bandwidth trace: the capacity of a link over time, loaded from a file and checked before any use."""

import hashlib
import itertools
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from cachegen import UnknownNameError
from testbed.errors import TraceError
from testbed.traces.reading import find_trace_file, read_recording
from testbed.traces.recording import Recording
from testbed.traces.text_stream import TraceData

TRACES_DIR = Path(__file__).resolve().parent.parent / "traces"
BYTES_PER_MBIT = 125_000

# What a link makes of less, but for an outage, which is an outage. A shaper keeps a debt as time: what it owes for a
# frame sent at this rate shuts it for an eighth of a second, whatever the rate is by then.
RATE_FLOOR_MBPS = 0.1

# Ends of file names that say nothing about the link.
_PLAIN_SUFFIXES = {".csv", ".json", ".txt", ".log", ".gz"}


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
        File name, without a suffix that means a kind of file.
    sha256 : str
        Hash of the file's bytes, in hex.
    times_s, rates_mbps : tuple of float
        Row i's rate holds from ``times_s[i]`` until ``times_s[i + 1]``; the first stamp is 0. The rate counts
        whole Ethernet frames (payload and all headers). 0 is an outage.
    delays_ms : tuple of float or None
        One-way propagation delay of each row; None if the file has no such column.
    period_s : float
        When the last row ends and the trace begins again. A single row means a constant link.
    format_name : str or None
        By which of ``testbed.traces.importers`` the file was read; None if it came from no file.
    notes : tuple of str
        What the importer says of it.
    """

    name: str
    sha256: str
    times_s: tuple[float, ...]
    rates_mbps: tuple[float, ...]
    delays_ms: tuple[float, ...] | None
    period_s: float
    format_name: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def mean_mbps(self) -> float:
        """Mean rate over time."""
        return self.capacity_bytes(0.0, self.period_s) / BYTES_PER_MBIT / self.period_s

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
        row = bisect_right(self.times_s, rest_s) - 1
        part = self._before_row_mbit[row] + (rest_s - self.times_s[row]) * self.rates_mbps[row]
        return repeats * self._before_row_mbit[-1] + part

    @cached_property
    def _before_row_mbit(self) -> tuple[float, ...]:
        """Integral from 0 to each row's beginning, and to the end of the last."""
        ends_s = (*self.times_s[1:], self.period_s)
        rows = zip(self.times_s, ends_s, self.rates_mbps, strict=True)
        return (0.0, *itertools.accumulate((end_s - start_s) * rate_mbps for start_s, end_s, rate_mbps in rows))


def replayed_mbps(rate_mbps: float) -> float:
    """Return the rate that a link has when the trace asks for ``rate_mbps``: 0, or at least the floor."""
    return max(RATE_FLOOR_MBPS, rate_mbps) if rate_mbps > 0 else 0.0


def trace_names() -> list[str]:
    """Return the names of the traces that come with the project."""
    return sorted(path.stem for path in TRACES_DIR.glob("*.csv"))


def is_trace_name(text: str) -> bool:
    """Return whether a text means a shipped trace; everything else is a path."""
    return "/" not in text and not Path(text).suffix


def trace_path(name_or_path: str | Path) -> Path:
    """Return the file that a shipped trace's name or a path means.

    Raises
    ------
    UnknownNameError
        No shipped trace has that name; the message lists those there are.
    """
    text = str(name_or_path)
    if not is_trace_name(text):
        return Path(text)
    if text not in trace_names():
        known = ", ".join(trace_names()) or "none"
        raise UnknownNameError(f"no trace named {text!r}; known: {known}; a file needs its path, as in ./{text}")
    return TRACES_DIR / f"{text}.csv"


def load_trace(name_or_path: str | Path, format_name: str | None = None, series: str | None = None) -> Trace:
    """Load a trace by the name of a shipped one (``lte``) or by the path of a file of any format that is known.

    A text without a slash and without a suffix is a name; everything else is a path. The format is recognised by
    the file's content, see ``testbed.traces.importers``, unless it is named.

    Parameters
    ----------
    name_or_path : str or Path
        Which trace.
    format_name, series : str or None
        As ``testbed.traces.reading.read_recording`` takes them.

    Raises
    ------
    UnknownNameError
        No shipped trace, or no format, has that name; the message lists those there are.
    TraceError
        The file cannot be read, its format is not clear, or a value in it cannot be replayed.
    """
    path = trace_path(name_or_path)
    if not path.exists():
        known = ", ".join(trace_names()) or "none"
        raise TraceError(f"trace {path}: No such file or directory; traces known by name: {known}")
    return parse_trace(find_trace_file(path), path, format_name, series)


def parse_trace(data: TraceData, path: Path, format_name: str | None = None, series: str | None = None) -> Trace:
    """Parse and check a trace file; ``path`` gives its name and stands in error texts."""
    found, recording = read_recording(data, path, format_name, series)
    return trace_of(recording, data, path, found)


def trace_of(recording: Recording, data: TraceData, path: Path, format_name: str) -> Trace:
    """Return the trace that a recording is, with name, hash and format of the file that it came from."""
    return Trace(
        name=_name_of(path),
        sha256=_sha256(data),
        times_s=recording.times_s,
        rates_mbps=recording.rates_mbps,
        delays_ms=recording.delays_ms,
        period_s=recording.period_s,
        format_name=format_name,
        notes=recording.notes,
    )


def _sha256(data: TraceData) -> str:
    if isinstance(data, bytes):
        return hashlib.sha256(data).hexdigest()
    with data.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _name_of(path: Path) -> str:
    while path.suffix in _PLAIN_SUFFIXES and path.stem:
        path = path.with_suffix("")
    return path.name
