"""Six columns, bytes that a phone received in each stretch: Norway HSDPA and Ghent 4G, as they were recorded."""

from testbed.errors import TraceError
from testbed.traces.importers.base import Importer
from testbed.traces.recording import Piece, Recording, record
from testbed.traces.source import Source, is_number, parse_number

_NAMES = ("unix time", "monotonic ms", "latitude", "longitude", "bytes", "ms since the last row")
_BYTES, _SPAN_MS, _CLOCK_MS = 4, 5, 1
# a moment of this century in seconds is below, in milliseconds above
_UNIX_MS_FROM = 1e11
# stamps are taken a little before or after the span is measured
_TOLERANCE_MS = 50.0
# more time left out than that many times what is kept: spans in another unit than the clock, and no gaps
_MOST_LEFT_OUT = 100.0


def _has_six_numbers(source: Source) -> bool:
    rows = [line.text.split() for line in source.head()]
    return all(len(cells) == len(_NAMES) and all(map(is_number, cells)) for cells in rows)


def _counts_ms(source: Source) -> bool:
    return float(source.head(1)[0].text.split()[0]) >= _UNIX_MS_FROM


def _read(source: Source, _series: str | None) -> Recording:
    pieces: list[Piece] = []
    before_ms: float | None = None
    gap_ms = twice_ms = 0.0
    for number, text in source.lines():
        place, cells = source.place(number), text.split()
        if len(cells) != len(_NAMES):
            raise TraceError(f"{place}: {len(cells)} values, not {len(_NAMES)}: {', '.join(_NAMES)}")
        clock_ms, received_bytes, span_ms = (
            parse_number(cells[index], f"{place}, {_NAMES[index]}") for index in (_CLOCK_MS, _BYTES, _SPAN_MS)
        )
        if before_ms is not None and clock_ms < before_ms:
            raise TraceError(f"{place}, monotonic ms: {clock_ms:.0f} comes after {before_ms:.0f}")
        if span_ms == 0:
            raise TraceError(f"{place}, ms since the last row: must be above 0")
        if before_ms is not None and clock_ms - span_ms > before_ms + _TOLERANCE_MS:
            gap_ms += clock_ms - span_ms - before_ms
        if before_ms is not None and clock_ms - span_ms < before_ms - _TOLERANCE_MS:
            twice_ms += before_ms - (clock_ms - span_ms)
        before_ms = clock_ms
        pieces.append(Piece(place, span_ms / 1e3, received_bytes * 8 / 1e3 / span_ms))
    covered_ms = 1e3 * sum(piece.duration_s for piece in pieces)
    if gap_ms > _MOST_LEFT_OUT * covered_ms:
        raise TraceError(
            f"trace {source.path}: {covered_ms:g} ms since the last row in all, but {gap_ms + covered_ms:g} by the "
            "monotonic clock: is the last column in ms?"
        )
    notes = [f"{gap_ms / 1e3:g} s in which nothing was measured are left out"] if gap_ms else []
    notes += [f"{twice_ms / 1e3:g} s are in two rows each: the clock went on by less than they say"] if twice_ms else []
    return record(source, pieces, notes)


_MEAN = "all bytes / all ms of the last column"

NORWAY = Importer(
    summary="Norway HSDPA: unix s, monotonic ms, latitude, longitude, bytes and ms since the last row",
    mean=_MEAN,
    recognises=lambda source: _has_six_numbers(source) and not _counts_ms(source),
    read=_read,
)
GHENT = Importer(
    summary="Ghent 4G/LTE: unix ms, monotonic ms, latitude, longitude, bytes and ms since the last row",
    mean=_MEAN,
    recognises=lambda source: _has_six_numbers(source) and _counts_ms(source),
    read=_read,
)
