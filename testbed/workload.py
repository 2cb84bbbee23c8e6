"""The schedule: which request asks about which context, and when it meets which stretch of the trace."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

B = TypeVar("B")
M = TypeVar("M")


@dataclass(frozen=True)
class Request:
    """One request of the schedule; every method serves it once.

    Parameters
    ----------
    index : int
        Place in the schedule.
    context : int
        Index of its context.
    trace_offset_s : float
        Where in the trace the link is when the request arrives.
    arrival_s : float
        Seconds since its batch began, see :mod:`testbed.arrivals`.
    """

    index: int
    context: int
    trace_offset_s: float
    arrival_s: float = 0.0


def make_schedule(requests: int, num_contexts: int, trace_period_s: float, seed: int) -> list[Request]:
    """Seeded trace offsets, uniform over the trace, so that no request meets the trace's beginning by rule."""
    return [
        Request(
            index=index,
            context=index % num_contexts,
            trace_offset_s=random.Random(f"{seed}/{index}").uniform(0.0, trace_period_s),
        )
        for index in range(requests)
    ]


def interleave(batches: Sequence[B], methods: Sequence[M]) -> list[tuple[B, M]]:
    """Every batch under every method; the order of methods rotates, so that none profits from its place."""
    return [
        (batch, methods[(place + number) % len(methods)])
        for number, batch in enumerate(batches)
        for place in range(len(methods))
    ]
