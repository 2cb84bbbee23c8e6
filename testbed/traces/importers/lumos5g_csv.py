"""Lumos5G's published table: iPerf's Mbit/s, a row a second, several runs in a file."""

from testbed.traces.importers.base import Importer, has_columns, pick_series
from testbed.traces.recording import Recording, Stamped, hold, record
from testbed.traces.source import Source

_RUN, _SECOND, _RATE = "run_num", "seq_num", "Throughput"


def _read(source: Source, series: str | None) -> Recording:
    rows = pick_series(source, _RUN, series)
    stamped = [
        Stamped(source.place(row.number), source.number(row, _SECOND), source.number(row, _RATE)) for row in rows
    ]
    return record(source, hold(stamped))


IMPORTER = Importer(
    summary="Lumos5G CSV: seq_num in seconds, Throughput in Mbit/s",
    mean="over time; a rate holds until the next seq_num, the last as long as the one before",
    recognises=has_columns(_RUN, _SECOND, _RATE),
    read=_read,
    series=_RUN,
)
