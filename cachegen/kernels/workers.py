"""Threads for kernels that hold no lock of the interpreter: as many as PyTorch may use."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache
from itertools import pairwise
from typing import TypeVar

import torch

Item = TypeVar("Item")
Result = TypeVar("Result")

_THREAD = threading.local()


def map_in_threads(work: Callable[[Item], Result], items: Sequence[Item], at_once: int | None = None) -> list[Result]:
    """Results of ``work`` for each item, in order; where some fail, the error of one, once none is at work any more.

    Parameters
    ----------
    work : callable
        Spends its time in compiled kernels and NumPy, not in PyTorch, which has threads of its own.
    items : sequence
    at_once : int, optional
        Items in work at the same time at most, where each takes memory of its own.
    """
    threads = min(torch.get_num_threads(), len(items), at_once or len(items))
    # a worker that waited for workers could wait for itself
    if threads <= 1 or getattr(_THREAD, "is_worker", False):
        return [work(item) for item in items]
    # each thread takes every so-manieth item, so that no more than that many are at work
    shares = [_pool(threads).submit(_work_share, work, items[first::threads]) for first in range(threads)]
    wait(shares)
    results = [share.result() for share in shares]
    return [results[i % threads][i // threads] for i in range(len(items))]


def work_in_slices(work: Callable[[slice], None], count: int, size: int) -> None:
    """Have ``work`` done on slices of ``size`` items that cover ``0..count-1``, one after the other."""
    for first in range(0, count, size):
        work(slice(first, min(first + size, count)))


def share_among_threads(work: Callable[[slice], None], count: int) -> None:
    """Have ``work`` done on slices that cover ``0..count-1``, one for each thread."""
    threads = min(torch.get_num_threads(), count)
    edges = [count * i // threads for i in range(threads + 1)]
    map_in_threads(work, [slice(first, end) for first, end in pairwise(edges)])


def _work_share(work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    _THREAD.is_worker = True
    return [work(item) for item in items]


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="cachegen-kernel")


# the threads stay behind in the parent
os.register_at_fork(after_in_child=_pool.cache_clear)
