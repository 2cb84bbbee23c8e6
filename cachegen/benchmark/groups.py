"""The measured points of a result by codec, the 8-bit casts included."""

from __future__ import annotations

from typing import Any

from cachegen.benchmark.curves import Point


def points_by_codec(result: dict[str, Any]) -> dict[str, list[Point]]:
    """Bits and KL of each codec's levels, in the order in which they were measured."""
    points: dict[str, list[Point]] = {}
    for row in result["rows"]:
        points.setdefault(row["codec"], []).append(Point(row["bits_per_element"], row["kl"]))
    for row in result["comparisons"]["casts"]:
        points[row["cast"]] = [Point(row["bits_per_element"], row["kl"])]
    return points
