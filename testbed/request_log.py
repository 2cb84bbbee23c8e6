"""Arrival times out of the public logs of LLM requests: Azure's (CSV) and Mooncake's (JSON lines).

Only the times are taken: what was asked is not in such logs.
"""

import csv
import json
import math
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

from cachegen import InvalidInputError

_AZURE_COLUMN, _MOONCAKE_FIELD = "TIMESTAMP", "timestamp"


def read_arrivals_s(path: Path, count: int) -> list[float]:
    """Return the first arrivals in seconds since the first one.

    Parameters
    ----------
    path : Path
        Azure's ``TIMESTAMP,ContextTokens,GeneratedTokens`` with UTC times, or Mooncake's lines of
        ``{"timestamp": milliseconds, ...}``; told apart by their first character.
    count : int
        How many are wanted.

    Raises
    ------
    InvalidInputError
        No such file, fewer requests, or a line that is not as it should be; the text names file, line and value.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            times_s = _first(path, _times_s(path, file.read(1), file), count)
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"{path}: {error}") from error
    return [time_s - times_s[0] for time_s in times_s]


def _times_s(path: Path, first_character: str, file: Iterator[str]) -> Iterator[tuple[int, float]]:
    """Line numbers and times, as they are asked for."""
    lines = _with_first_character(first_character, file)
    return _mooncake(path, lines) if first_character == "{" else _azure(path, lines)


def _with_first_character(first_character: str, file: Iterator[str]) -> Iterator[str]:
    yield first_character + next(file, "")
    yield from file


def _first(path: Path, times: Iterator[tuple[int, float]], count: int) -> list[float]:
    found: list[float] = []
    for number, time_s in times:
        if found and time_s < found[-1]:
            raise InvalidInputError(f"{path}:{number}: a request {found[-1] - time_s:g} s before the one above it")
        found.append(time_s)
        if len(found) == count:
            return found
    raise InvalidInputError(f"{path}: holds {len(found)} requests; {count} are wanted")


def _mooncake(path: Path, lines: Iterator[str]) -> Iterator[tuple[int, float]]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise InvalidInputError(f"{path}:{number}: not JSON: {error}") from error
        time_ms = row.get(_MOONCAKE_FIELD) if isinstance(row, dict) else None
        if isinstance(time_ms, bool) or not isinstance(time_ms, int | float) or not math.isfinite(time_ms):
            raise InvalidInputError(f'{path}:{number}: "{_MOONCAKE_FIELD}" must be milliseconds, not {time_ms!r}')
        yield number, time_ms / 1e3


def _azure(path: Path, lines: Iterator[str]) -> Iterator[tuple[int, float]]:
    rows = csv.DictReader(lines)
    if _AZURE_COLUMN not in (rows.fieldnames or ()):
        raise InvalidInputError(f"{path}:1: neither a column {_AZURE_COLUMN} nor JSON lines")
    began: datetime | None = None
    for row in rows:
        try:
            # seven digits behind the point, which Python cuts to six
            moment = datetime.fromisoformat(row[_AZURE_COLUMN])
        except (ValueError, TypeError) as error:
            raise InvalidInputError(f"{path}:{rows.line_num}: no time: {row[_AZURE_COLUMN]!r}") from error
        began = began or moment
        try:
            yield rows.line_num, (moment - began) / timedelta(seconds=1)
        except TypeError as error:
            raise InvalidInputError(
                f"{path}:{rows.line_num}: {moment} has a time zone where the first has none, or none"
            ) from error
