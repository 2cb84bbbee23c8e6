"""``requests.csv`` read back: every cell checked, errors by line and column."""

import csv
import io
import json
import math
from pathlib import Path
from typing import Any

from testbed.errors import RunFileError
from testbed.metrics import STAGES, RequestRow
from testbed.run_text import read_text
from testbed.slo import VIOLATION_CLASSES

_NEEDED = {"request", "method", "context", "trace_offset_s", "status", "slo_ms", "ttft_ms", "bytes"}
_MAX_DIGITS = 18
_STATUSES = {"ok", *VIOLATION_CLASSES} - {"late"}


def read_requests(path: Path) -> tuple[RequestRow, ...]:
    """Rows of ``requests.csv``.

    Columns that this release does not know are left alone; quality and the oracle may be absent.

    Raises
    ------
    RunFileError
        No such file, no rows, a column or cell that is missing or out of range, or a request twice under one method.
    """
    reader = csv.DictReader(io.StringIO(read_text(path), newline=""))
    try:
        return _read_rows(path, reader)
    except csv.Error as error:
        raise RunFileError(f"{path}:{reader.line_num}: not CSV: {error}") from error


def _read_rows(path: Path, reader: "csv.DictReader[str]") -> tuple[RequestRow, ...]:
    if missing := sorted(_NEEDED - set(reader.fieldnames or ())):
        raise RunFileError(f"{path}: no column {missing[0]}")
    rows: dict[tuple[str, int], RequestRow] = {}
    for cells in reader:
        row = _Line(path, reader.line_num, cells).row()
        if None in cells or None in cells.values():
            raise RunFileError(f"{path}:{reader.line_num}: a damaged row: not a cell for each column")
        if (row.method, row.request) in rows:
            raise RunFileError(f"{path}:{reader.line_num}: request {row.request} of {row.method} stands there twice")
        rows[row.method, row.request] = row
    if not rows:
        raise RunFileError(f"{path}: holds no request")
    return tuple(rows.values())


class _Line:
    def __init__(self, path: Path, number: int, cells: dict[str, Any]) -> None:
        self._place, self._cells = f"{path}:{number}", cells

    def row(self) -> RequestRow:
        status, ttft_ms = self._text("status"), self._number("ttft_ms", above=0.0)
        if status not in _STATUSES:
            raise self._error("status", f"must be one of {', '.join(sorted(_STATUSES))}")
        if (status == "ok") != (ttft_ms is not None):
            raise self._error("ttft_ms", f"does not go with the status {status}")
        stages = {stage: self._number(f"stages_ms.{stage}") for stage in STAGES}
        return RequestRow(
            request=self._count("request"),
            method=self._text("method"),
            context=self._text("context"),
            trace_offset_s=self._needed("trace_offset_s"),
            slo_ms=self._needed("slo_ms", above=0.0),
            status=status,
            ttft_ms=ttft_ms,
            stages_ms={stage: spent_ms for stage, spent_ms in stages.items() if spent_ms is not None},
            bytes=self._count("bytes"),
            kl=self._number("kl"),
            agreement=self._number("agreement"),
            dppl=self._number("dppl"),
            levels=self._levels(),
            link_mbps=self._number("link_mbps"),
            error=self._cells.get("error") or "",
            oracle_ttft_ms=self._number("oracle_ttft_ms", above=0.0),
            batch=self._count("batch") if self._cells.get("batch") else 0,
            sharing=self._cells.get("sharing") or "",
            arrival_s=self._number("arrival_s") or 0.0,
            ended_s=self._number("ended_s") or 0.0,
            score=self._number("score"),
            reference_score=self._number("reference_score"),
            score_name=self._cells.get("score_name") or "",
            answer=self._cells.get("answer") or "",
            near_bytes=self._count("near_bytes") if self._cells.get("near_bytes") else 0,
            wasted_bytes=self._count("wasted_bytes") if self._cells.get("wasted_bytes") else None,
        )

    def _text(self, column: str) -> str:
        text = self._cells.get(column)
        if not text:
            raise self._error(column, "must not be empty")
        return str(text)

    def _number(self, column: str, above: float = -math.inf) -> float | None:
        if not self._cells.get(column):
            return None
        try:
            value = float(self._cells[column])
        except ValueError:
            value = math.nan
        if not math.isfinite(value) or value <= above:
            raise self._error(column, "must be a finite number" + (f" above {above:g}" if math.isfinite(above) else ""))
        return value

    def _needed(self, column: str, above: float = -math.inf) -> float:
        value = self._number(column, above)
        if value is None:
            raise self._error(column, "must not be empty")
        return value

    def _count(self, column: str) -> int:
        text = self._text(column)
        if not (text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS):
            raise self._error(column, f"must be a whole number of at most {_MAX_DIGITS} digits, 0 or more")
        return int(text)

    def _levels(self) -> dict[str, int]:
        text = self._cells.get("levels") or "{}"
        try:
            levels = json.loads(text)
        except ValueError:
            levels = None
        if not isinstance(levels, dict) or not all(isinstance(count, int) for count in levels.values()):
            raise self._error("levels", "must be a JSON object of counts")
        return levels

    def _error(self, column: str, wanted: str) -> RunFileError:
        return RunFileError(f"{self._place}: {column} {wanted}, not {self._cells.get(column)!r}")
