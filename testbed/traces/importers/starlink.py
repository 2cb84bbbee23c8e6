"""Starlink measurements: on the Autobahn (stretches with begin and end), and iperf3's (stamps)."""

from datetime import UTC, datetime

from testbed.errors import TraceError
from testbed.traces.importers.base import Importer, has_columns
from testbed.traces.recording import Piece, Recording, Stamped, hold, record
from testbed.traces.source import Row, Source, shown

_BEGIN, _END, _DOWNLOAD = "timestamp_start_dl", "timestamp_end_dl", "download"
_TIME, _RATE = "time", "throughput_mbps"
# of the stamps' clock; stretches may overlap by as much
_TOLERANCE_S = 0.005
_ORIGIN = datetime(2000, 1, 1, tzinfo=UTC)


def _stamp_s(source: Source, row: Row, column: str) -> float:
    """Return seconds since the year 2000 of a stamp, whose decimals beyond the sixth no replay needs."""
    text = source.cell(row, column)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise TraceError(f"{source.place(row.number, column)}: {shown(text)} is not a date and time") from None
    # most stamps have no zone; only differences matter
    return (moment.replace(tzinfo=moment.tzinfo or UTC) - _ORIGIN).total_seconds()


def _read_stretches(source: Source, _series: str | None) -> Recording:
    pieces: list[Piece] = []
    until_s: float | None = None
    gap_s = 0.0
    for row in source.rows():
        begin_s, end_s = _stamp_s(source, row, _BEGIN), _stamp_s(source, row, _END)
        if end_s <= begin_s:
            raise TraceError(f"{source.place(row.number, _END)}: the stretch ends before it begins")
        if until_s is not None and begin_s < until_s - _TOLERANCE_S:
            raise TraceError(f"{source.place(row.number, _BEGIN)}: the stretch begins before the last one's end")
        if until_s is not None and begin_s > until_s + _TOLERANCE_S:
            gap_s += begin_s - until_s
        until_s = end_s
        pieces.append(Piece(source.place(row.number, _DOWNLOAD), end_s - begin_s, source.number(row, _DOWNLOAD)))
    notes = [f"{gap_s:.3f} s in which nothing was measured are left out"] if gap_s else []
    return record(source, pieces, notes)


def _read_stamps(source: Source, _series: str | None) -> Recording:
    stamped = [
        Stamped(source.place(row.number), _stamp_s(source, row, _TIME), source.number(row, _RATE))
        for row in source.rows()
    ]
    return record(source, hold(stamped))


AUTOBAHN = Importer(
    summary="Starlink on the Autobahn CSV: timestamp_start_dl, timestamp_end_dl, download in Mbit/s",
    mean="over the time measured: download by the length of each stretch",
    recognises=has_columns(_BEGIN, _END, _DOWNLOAD),
    read=_read_stretches,
)
IPERF = Importer(
    summary="Starlink by iperf3 CSV: time (ISO 8601), throughput_mbps",
    mean="over time; a rate holds until the next stamp, the last as long as the one before",
    recognises=has_columns(_TIME, _RATE),
    read=_read_stamps,
)
