"""Puffer, raw (video_sent): the kernel's delivery rate whenever a server sent a chunk of video."""

from testbed.traces.importers.base import Importer, has_columns, pick_series
from testbed.traces.recording import Recording, Stamped, hold, record
from testbed.traces.source import Source

_TIME, _SESSION, _RATE = "time (ns GMT)", "session_id", "delivery_rate"


def _read(source: Source, series: str | None) -> Recording:
    rows = pick_series(source, source.rows(), _SESSION, series)
    # nanoseconds since 1970 do not fit a float to the last digit: the difference does
    first_ns = source.whole_number(rows[0], _TIME) if rows else 0
    stamped = [
        Stamped(
            source.place(row.number),
            (source.whole_number(row, _TIME) - first_ns) / 1e9,
            source.number(row, _RATE) * 8 / 1e6,
        )
        for row in rows
    ]
    return record(source, hold(stamped), ["delivery_rate is a sender's estimate, and low where it had little to send"])


IMPORTER = Importer(
    summary="Puffer raw CSV (video_sent): time in ns, delivery_rate in bytes/s",
    mean="over time; a rate holds until the session's next row, the last as long as the one before",
    recognises=has_columns(_TIME, _SESSION, _RATE),
    read=_read,
    series=_SESSION,
)
