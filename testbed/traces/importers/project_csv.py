"""The project's own format: ``time_s,rate_mbps[,delay_ms]``."""

from testbed.errors import TraceError
from testbed.traces.importers.base import Importer
from testbed.traces.recording import CONSTANT_PERIOD_S, Piece, Recording, check_limits
from testbed.traces.source import Source, parse_number, split_csv

COLUMNS = ("time_s", "rate_mbps", "delay_ms")
# Steps that a timer cannot keep.
MIN_STEP_S = 0.001


def _recognises(source: Source) -> bool:
    return tuple(source.header()) in (COLUMNS, COLUMNS[:2])


def _read(source: Source, _series: str | None) -> Recording:
    lines = source.lines()
    columns = split_csv(next(lines).text)
    if tuple(columns) not in (COLUMNS, COLUMNS[:2]):
        raise TraceError(
            f"trace {source.path}, line 1: the header must be time_s,rate_mbps[,delay_ms], not {','.join(columns)!r}"
        )
    rows: list[list[float]] = []
    for number, text in lines:
        row = _parse_row(split_csv(text), columns, source.place(number))
        _check_step(row[0], rows[-1][0] if rows else None, source.place(number, "time_s"))
        rows.append(row)
    if not rows:
        raise TraceError(f"trace {source.path}: a header and no rows")
    if not any(row[1] for row in rows):
        raise TraceError(f"trace {source.path}: every rate_mbps is 0, nothing could ever arrive")
    times_s = tuple(row[0] for row in rows)
    return Recording(
        times_s=times_s,
        rates_mbps=tuple(row[1] for row in rows),
        delays_ms=tuple(row[2] for row in rows) if len(columns) == len(COLUMNS) else None,
        period_s=2 * times_s[-1] - times_s[-2] if len(times_s) > 1 else CONSTANT_PERIOD_S,
    )


def _parse_row(cells: list[str], columns: list[str], place: str) -> list[float]:
    if len(cells) != len(columns):
        raise TraceError(f"{place}: {len(cells)} values for the {len(columns)} columns {','.join(columns)}")
    row = [parse_number(cell, f"{place}, {column}") for column, cell in zip(columns, cells, strict=True)]
    check_limits(Piece(f"{place}, rate_mbps", 0.0, row[1]))
    if len(row) == len(COLUMNS):
        check_limits(Piece(f"{place}, delay_ms", 0.0, 0.0, row[2]))
    return row


def _check_step(now_s: float, before_s: float | None, place: str) -> None:
    if before_s is None:
        if now_s != 0:
            raise TraceError(f"{place}: the first stamp must be 0, not {now_s:g}")
        return
    if now_s <= before_s:
        raise TraceError(f"{place}: {now_s:g} does not come after {before_s:g}")
    # a hair of tolerance: 0.3 - 0.299 is a little less than a millisecond in binary
    if now_s - before_s < MIN_STEP_S * (1 - 1e-6):
        raise TraceError(f"{place}: a step of {now_s - before_s:g} s is below {MIN_STEP_S} s")


IMPORTER = Importer(
    summary="time_s,rate_mbps[,delay_ms]: the project's own format",
    mean="over time; a rate holds until the next row",
    recognises=_recognises,
    read=_read,
)
