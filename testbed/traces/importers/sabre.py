"""Sabre: a JSON list of stretches."""

import json
from typing import Any

from testbed.errors import TraceError
from testbed.traces.importers.base import Importer
from testbed.traces.recording import Piece, Recording, record
from testbed.traces.source import Source, parse_number, shown

_FIELDS = ("duration_ms", "bandwidth_kbps")


def _recognises(source: Source) -> bool:
    return source.head(1)[0].text.startswith("[")


def _read(source: Source, _series: str | None) -> Recording:
    try:
        # numbers stay text: they are checked with their place
        entries = json.loads(source.text(), parse_float=str, parse_int=str, parse_constant=str)
    except (ValueError, RecursionError) as error:
        raise TraceError(f"trace {source.path}: not JSON: {error}") from None
    if not isinstance(entries, list):
        raise TraceError(f"trace {source.path}: must be a JSON list of stretches")
    pieces = [_piece(entry, f"trace {source.path}, entry {index}") for index, entry in enumerate(entries, start=1)]
    notes = (
        ["the delay is half of latency_ms, which is a round trip"] if pieces and pieces[0].delay_ms is not None else []
    )
    if len({piece.delay_ms is None for piece in pieces}) > 1:
        raise TraceError(f"trace {source.path}: some entries have latency_ms and some have not")
    return record(source, pieces, notes)


def _piece(entry: Any, place: str) -> Piece:
    if not isinstance(entry, dict) or not set(_FIELDS) <= entry.keys():
        raise TraceError(f"{place}: must have {' and '.join(_FIELDS)}, is {shown(json.dumps(entry))}")
    duration_ms, rate_kbps = (parse_number(str(entry[name]), f"{place}, {name}") for name in _FIELDS)
    if duration_ms == 0:
        raise TraceError(f"{place}, duration_ms: must be above 0")
    latency = entry.get("latency_ms")
    delay_ms = None if latency is None else parse_number(str(latency), f"{place}, latency_ms") / 2
    return Piece(place, duration_ms / 1e3, rate_kbps / 1e3, delay_ms)


IMPORTER = Importer(
    summary="Sabre: JSON list of duration_ms, bandwidth_kbps, latency_ms",
    mean="over time, by duration_ms",
    recognises=_recognises,
    read=_read,
)
