"""Puffer, raw (video_sent): the kernel's delivery rate whenever a server sent a chunk of video."""

from testbed.traces.importers.base import Importer, has_columns, pick_series
from testbed.traces.recording import Recording, Stamped, hold, record
from testbed.traces.source import Source

_TIME, _SESSION, _RATE = "time (ns GMT)", "session_id", "delivery_rate"


def _read(source: Source, series: str | None) -> Recording:
    stamped: list[Stamped] = []
    first_ns: int | None = None
    for row in pick_series(source, _SESSION, series):
        now_ns = source.whole_number(row, _TIME)
        first_ns = now_ns if first_ns is None else first_ns
        # nanoseconds since 1970 do not fit a float to the last digit: the difference does
        time_s, rate_mbps = (now_ns - first_ns) / 1e9, source.number(row, _RATE) * 8 / 1e6
        stamped.append(Stamped(source.place(row.number), time_s, rate_mbps))
    return record(source, hold(stamped), ["delivery_rate is a sender's estimate, and low where it had little to send"])


IMPORTER = Importer(
    summary="Puffer raw CSV (video_sent): time in ns, delivery_rate in bytes/s",
    mean="over time; a rate holds until the session's next row, the last as long as the one before",
    recognises=has_columns(_TIME, _SESSION, _RATE),
    read=_read,
    series=_SESSION,
)
