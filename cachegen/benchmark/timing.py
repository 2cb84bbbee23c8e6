"""How long a piece of work takes."""

import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import torch

# A median of five passes over one or two that something else on the machine disturbed.
REPEATS = 5

T = TypeVar("T")


def timed(work: Callable[[], T], repeats: int = REPEATS) -> tuple[T, float]:
    """What the work gives, and the median seconds of some passes behind one that is not counted."""
    result = work()
    seconds = []
    for _ in range(repeats):
        result, pass_s = _pass(work)
        seconds.append(pass_s)
    return result, statistics.median(seconds)


def timed_in_turns(works: Sequence[Callable[[], object]], rounds: int = 2 * REPEATS - 1) -> list[float]:
    """Median seconds of each piece of work, behind a round that is not counted.

    A processor is slower at some times than at others, and what is fast may be over within one of these.
    """
    seconds: list[list[float]] = [[] for _ in works]
    for _ in range(1 + rounds):
        for own, work in zip(seconds, works, strict=True):
            own.append(_pass(work)[1])
    return [statistics.median(own[1:]) for own in seconds]


def _pass(work: Callable[[], T]) -> tuple[T, float]:
    """What one pass gives, and its seconds."""
    started_s = time.perf_counter()
    result = work()
    _wait_for_device()
    return result, time.perf_counter() - started_s


def _wait_for_device() -> None:
    """A GPU answers before it is done."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


@contextmanager
def one_core() -> Iterator[None]:
    """Keep every thread that the process has on one and the same core meanwhile."""
    core = min(os.sched_getaffinity(0))
    cores = {}
    for thread in [int(path.name) for path in Path("/proc/self/task").iterdir()]:
        # it may have ended since it was listed
        with suppress(ProcessLookupError):
            cores[thread] = os.sched_getaffinity(thread)
            os.sched_setaffinity(thread, {core})
    try:
        yield
    finally:
        for thread, own in cores.items():
            with suppress(ProcessLookupError):
                os.sched_setaffinity(thread, own)
