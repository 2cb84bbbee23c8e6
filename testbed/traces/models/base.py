"""What a model of a link is, and the trace file that comes of it."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from cachegen import InvalidInputError

# Only random() of a seeded generator is promised to stay the same across Python versions.
Draw = Callable[[], float]
MAX_ROWS = 1_000_000


class LinkRow(NamedTuple):
    """One step of a trace."""

    rate_mbps: float
    delay_ms: float | None = None


@dataclass(frozen=True)
class TraceModel:
    """A seeded model of a link.

    Parameters
    ----------
    summary : str
        What link it is, in a line.
    source : str
        Where its parameters come from.
    rows : callable
        Yields the link's rows from a source of uniform values in [0, 1); endless.
    step_s : float
        Length of a row, in tenths of a second.
    duration_s, seed : float, int
        Of the shipped file.
    """

    summary: str
    source: str
    rows: Callable[[Draw], Iterator[LinkRow]]
    step_s: float
    duration_s: float
    seed: int


def synthesize(model: TraceModel, seed: int, duration_s: float, scale: float = 1.0) -> str:
    """Return the text of a trace file, the same on every machine.

    Parameters
    ----------
    model : TraceModel
        The link.
    seed : int
        Of its draws.
    duration_s : float
        Length, rounded to whole rows.
    scale : float
        Factor of all rates.

    Raises
    ------
    InvalidInputError
        The length is less than a row or more than a million of them, or the factor is not positive.
    """
    count = duration_s / model.step_s if math.isfinite(duration_s) else math.inf
    if not 1 <= round(min(count, MAX_ROWS + 1)) <= MAX_ROWS:
        raise InvalidInputError(f"duration must be from {model.step_s:g} to {MAX_ROWS * model.step_s:g} s")
    if not (math.isfinite(scale) and scale > 0):
        raise InvalidInputError(f"scale must be a positive number, not {scale:g}")
    rows = model.rows(Random(seed).random)
    lines = []
    for index in range(round(count)):
        rate_mbps, delay_ms = next(rows)
        cells = f"{index * model.step_s:.1f},{scale * rate_mbps:.3f}"
        lines.append(cells if delay_ms is None else f"{cells},{delay_ms:.1f}")
    header = "time_s,rate_mbps" + (",delay_ms" if delay_ms is not None else "")
    return "\n".join([header, *lines]) + "\n"
