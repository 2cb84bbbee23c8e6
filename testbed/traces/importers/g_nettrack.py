"""G-NetTrack Pro, as in UCC's 4G and 5G sets: a row a second of what a phone received."""

from datetime import datetime

from testbed.errors import TraceError
from testbed.traces.importers.base import Importer, has_columns
from testbed.traces.recording import Piece, Recording, record
from testbed.traces.source import Source, shown

_STAMP = "%Y.%m.%d_%H.%M.%S"
_DOWNLOADING, _MISSING = "D", ("-", "")
# The stamps are whole seconds: of a row every 1.00x s some share one and as many are skipped. So the stamps order the
# rows, and each row stands for the second that it was averaged over.
_ROW_S = 1.0
# Rows and stamps of a recording without gaps are closer than that.
_SAME_SPAN = 0.05


def _read(source: Source, _series: str | None) -> Recording:
    pieces: list[Piece] = []
    idle = missing = 0
    first: datetime | None = None
    before: datetime | None = None
    for row in source.rows():
        place = source.place(row.number)
        before = _check_stamp(source.cell(row, "Timestamp"), before, f"{place}, Timestamp")
        first = first or before
        if source.cell(row, "State") != _DOWNLOADING:
            idle += 1
        elif row.cells["DL_bitrate"] in _MISSING:
            missing += 1
        else:
            pieces.append(Piece(f"{place}, DL_bitrate", _ROW_S, source.number(row, "DL_bitrate") / 1e3))
    if not pieces or first is None or before is None:
        raise TraceError(f"trace {source.path}: no row has State {_DOWNLOADING} and a DL_bitrate")
    notes = [f"rows left out, of another State than D (downloading): {idle}"] if idle else []
    notes += [f"rows left out, without a DL_bitrate: {missing}"] if missing else []
    rows, span_s = len(pieces) + idle + missing, (before - first).total_seconds() + _ROW_S
    if abs(span_s / (rows * _ROW_S) - 1) > _SAME_SPAN:
        notes.append(f"the stamps reach over {span_s:g} s, but there are {rows} rows, each taken for a second")
    return record(source, pieces, notes)


def _check_stamp(text: str, before: datetime | None, place: str) -> datetime:
    try:
        now = datetime.strptime(text, _STAMP)  # the phone's own clock; only the order matters
    except ValueError:
        raise TraceError(f"{place}: {shown(text)} is not a stamp like 2019.12.14_10.16.30") from None
    if before is not None and now < before:
        raise TraceError(f"{place}: {text} comes after {before.strftime(_STAMP)}")
    return now


IMPORTER = Importer(
    summary="G-NetTrack Pro CSV (UCC 4G/5G): DL_bitrate in kbit/s, a row a second, State D",
    mean="of all rows with State D and a DL_bitrate, each a second",
    recognises=has_columns("Timestamp", "DL_bitrate", "State"),
    read=_read,
)
