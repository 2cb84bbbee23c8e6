"""FCC Measuring Broadband America, raw: speed tests (curr_httpgetmt) and page loads (curr_webget) of many homes."""

import re

from testbed.errors import TraceError
from testbed.traces.importers.base import Importer, has_columns, pick_series
from testbed.traces.recording import Piece, Recording, record
from testbed.traces.source import Row, Source

_UNIT, _TIME, _TARGET, _ADDRESS, _SPAN_US, _BYTES, _RATE, _SEQUENCE = (
    "unit_id",
    "dtime",
    "target",
    "address",
    "fetch_time",
    "bytes_total",
    "bytes_sec",
    "sequence",
)
# bytes_sec is the sum of the connections' speeds, so it may be off the quotient; another unit is off by 8 or 1,000.
_SAME_SHARE, _SAME_UNIT_FACTOR, _SAME_BYTES_SEC = 0.01, 2.0, 1.0
# Files of the first years have no header. Both kinds begin with the same seven columns.
_FIRST = (_UNIT, _TIME, _TARGET, _ADDRESS, _SPAN_US, _BYTES, _RATE)
_SPEED_TEST = (
    *_FIRST,
    "bytes_sec_interval",
    "warmup_time",
    "warmup_bytes",
    _SEQUENCE,
    "threads",
    "successes",
    "failures",
)
_SPEED_TEST_LENGTHS = (len(_SPEED_TEST), len(_SPEED_TEST) + 1)  # later ones add location_id
_STAMP = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")
_TEST = (_TIME, _TARGET, _ADDRESS)  # what the rows of one test have in common
_has_header = has_columns(_UNIT, _SPAN_US, _BYTES, _RATE)


def _has_no_header(source: Source) -> bool:
    cells = source.header()
    return len(cells) >= len(_SPEED_TEST) and cells[0].isdigit() and _STAMP.fullmatch(cells[1]) is not None


def _columns(source: Source) -> list[str] | None:
    """Return the names of the columns, where the first line does not have them."""
    if _has_header(source):
        return None
    cells = len(source.header())
    names = _SPEED_TEST if cells in _SPEED_TEST_LENGTHS else _FIRST
    return [*names, *(f"column {index + 1}" for index in range(len(names), cells))]


def _read(source: Source, series: str | None) -> Recording:
    pieces: list[Piece] = []
    empty = 0
    differences: list[float] = []
    before: Row | None = None
    for row in pick_series(source, _UNIT, series, _columns(source)):
        span_us, received_bytes = source.number(row, _SPAN_US), source.number(row, _BYTES)
        if span_us > 0 and (share := _difference(source, row, received_bytes * 1e6 / span_us)) > _SAME_SHARE:
            differences.append(share)
        if before is not None and _goes_on(source, before, row):
            # the rows of one test count from its beginning
            span_us -= source.number(before, _SPAN_US)
            received_bytes -= source.number(before, _BYTES)
            if span_us <= 0 or received_bytes < 0:
                raise TraceError(f"{source.place(row.number)}: counts less than the row before it of the same test")
        before = row
        if span_us == 0:
            empty += 1
            continue
        pieces.append(Piece(source.place(row.number), span_us / 1e6, received_bytes * 8 / span_us))
    notes = ["the tests follow each other; the time between them is left out"]
    notes += [f"rows left out, that lasted no time: {empty}"] if empty else []
    if differences:
        notes.append(
            f"rows whose bytes_sec is more than {_SAME_SHARE:.0%} off bytes_total / fetch_time, which is what is "
            f"replayed: {len(differences)}, the farthest by {max(differences):.0%}"
        )
    return record(source, pieces, notes)


def _difference(source: Source, row: Row, counted: float) -> float:
    """Return by what share bytes_sec is off the bytes/s that the row's counts make; refuse a slip of unit."""
    stated = source.number(row, _RATE)
    if abs(stated - counted) <= _SAME_BYTES_SEC:
        return 0.0
    if not counted / _SAME_UNIT_FACTOR <= stated <= counted * _SAME_UNIT_FACTOR:
        raise TraceError(
            f"{source.place(row.number, _RATE)}: {stated:.10g} bytes/s, but bytes_total / fetch_time makes "
            f"{counted:.10g}: are they bytes and microseconds?"
        )
    return abs(stated / counted - 1)


def _goes_on(source: Source, before: Row, row: Row) -> bool:
    """Whether a row is a later stretch of the test that the row before it belongs to; refuse an earlier one."""
    if _SEQUENCE not in row.cells or any(before.cells.get(name) != row.cells.get(name) for name in _TEST):
        return False
    first, second = (source.whole_number(one, _SEQUENCE) for one in (before, row))
    if second <= first:
        raise TraceError(
            f"{source.place(row.number, _SEQUENCE)}: {second} comes after {first} of the same test: the rows are not "
            "in order, or twice in the file"
        )
    return True


IMPORTER = Importer(
    summary="FCC MBA raw CSV (httpgetmt, webget): bytes_total in bytes, fetch_time in us, bytes_sec in bytes/s",
    mean="all bytes_total / all fetch_time",
    recognises=lambda source: _has_header(source) or _has_no_header(source),
    read=_read,
    series=_UNIT,
)
