"""How long a piece of work takes."""

import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
        started_s = time.perf_counter()
        result = work()
        _wait_for_device()
        seconds.append(time.perf_counter() - started_s)
    return result, statistics.median(seconds)


def _wait_for_device() -> None:
    """A GPU answers before it is done."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


@contextmanager
def one_core() -> Iterator[None]:
    """Keep every thread that the process has on one and the same core meanwhile."""
    threads = [int(path.name) for path in Path("/proc/self/task").iterdir()]
    cores = {thread: os.sched_getaffinity(thread) for thread in threads}
    for thread in threads:
        os.sched_setaffinity(thread, {min(cores[os.getpid()])})
    try:
        yield
    finally:
        for thread in threads:
            os.sched_setaffinity(thread, cores[thread])
