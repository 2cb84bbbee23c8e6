"""The file of a benchmark's result, and what its readers take from it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cachegen.benchmark.curves import Point
from cachegen.errors import FormatError, VersionError
from cachegen.input_file import read_text
from cachegen.strict_json import parse_object
from cachegen.whole_file import write_whole

BENCH_SCHEMA = 1


def write_result(path: Path, result: dict[str, Any]) -> None:
    """Write a result; the file appears whole or not at all."""
    write_whole(path, (json.dumps(result, indent=1) + "\n").encode())


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
    for row in result["rows"]:
        points.setdefault(row["codec"], []).append(Point(row["bits_per_element"], row["kl"]))
    for row in result["comparisons"]["casts"]:
        points[row["cast"]] = [Point(row["bits_per_element"], row["kl"])]
    return points
