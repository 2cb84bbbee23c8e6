"""The file of a benchmark's result, and what its readers take from it."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from cachegen.benchmark.curves import Point
from cachegen.errors import FormatError, VersionError
from cachegen.input_file import read_text
from cachegen.strict_json import parse_object
from cachegen.whole_file import write_whole

BENCH_SCHEMA = 1


def write_result(path: Path, result: dict[str, Any]) -> None:
    """Write a result; the file appears whole or not at all.

    A figure that is no finite number becomes null, with what it was in the ``reasons`` of the object that it stands in.
    """
    write_whole(path, (json.dumps(_finite(result), indent=1, allow_nan=False) + "\n").encode())


def _finite(value: Any) -> Any:
    if isinstance(value, list):
        return [_finite(entry) for entry in value]
    if not isinstance(value, dict):
        return value
    lost = {name: f"not a finite number: {entry}" for name, entry in value.items() if _is_not_finite(entry)}
    kept: dict[str, Any] = {name: None if name in lost else _finite(entry) for name, entry in value.items()}
    return kept | {"reasons": kept.get("reasons", {}) | lost} if lost else kept


def _is_not_finite(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def read_result(path: Path) -> dict[str, Any]:
    """Read a result.

    Raises
    ------
    InvalidInputError
        The file cannot be read.
    FormatError
        It is not a JSON object.
    VersionError
        It is not a result, or of another schema.
    """
    try:
        result = parse_object(read_text(path))
    except FormatError as error:
        raise FormatError(f"{path}: {error}") from error
    if result.get("schema") != BENCH_SCHEMA or "comparisons" not in result:
        raise VersionError(f"{path}: not a result of cachegen bench in schema {BENCH_SCHEMA}")
    return result


def points_by_codec(result: dict[str, Any]) -> dict[str, list[Point]]:
    """Bits and KL of each codec's levels, then of the 8-bit casts, in the order in which they were measured."""
    points: dict[str, list[Point]] = {}
    for row in (*result["rows"], *result["comparisons"]["casts"]):
        # a divergence that is no number has no place among the others
        if row["kl"] is not None:
            points.setdefault(row.get("codec") or row["cast"], []).append(Point(row["bits_per_element"], row["kl"]))
    return points
