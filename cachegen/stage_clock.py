"""Where a request's time goes: a clock whose stages partition the time, so that they always sum to it."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum


class Stage(StrEnum):
    """What a request was doing at an instant, as seen from the side that computes.

    While the compute side works, the instant belongs to what it works on, whatever the network does beside it;
    so ``WAIT`` and ``FETCH`` hold only the network time that no computation hid. Of two works side by side the instant
    belongs to the one further down this list: decoding counts where no recomputation hid it.
    """

    QUEUE = "queue"  # arrived, not yet looked at, or behind other loads
    WAIT = "wait"  # asked the store; no byte of the answer is there
    FETCH = "fetch"  # bytes are arriving
    DECODE = "decode"  # bitstreams become KV
    RECOMPUTE = "recompute"  # prefill of context tokens
    QUESTION_PREFILL = "question_prefill"  # prefill of the question, to the first sampled token


_ORDER = {stage: place for place, stage in enumerate(Stage)}


class StageClock:
    """Charges every instant from ``start_s`` on to exactly one stage. Safe to use from several threads.

    Parameters
    ----------
    start_s : float
        The scheduled arrival, on ``clock``'s scale.
    clock : callable
        Seconds, monotonic.
    """

    def __init__(self, start_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._network = Stage.QUEUE
        self._computing: list[Stage] = []
        self._last_s = self.start_s = start_s
        self._spent_s = dict.fromkeys(Stage, 0.0)

    def elapsed_s(self) -> float:
        """Seconds since the scheduled arrival."""
        return self._clock() - self.start_s

    def network(self, stage: Stage) -> None:
        """Say what the network side is doing from now on."""
        with self._lock:
            self._charge()
            self._network = stage

    @contextmanager
    def compute(self, stage: Stage) -> Iterator[None]:
        """Say that the compute side works on ``stage`` inside the with-block."""
        with self._lock:
            self._charge()
            self._computing.append(stage)
        try:
            yield
        finally:
            with self._lock:
                self._charge()
                self._computing.remove(stage)

    def stop(self) -> dict[Stage, float]:
        """Seconds spent in each stage up to now; their sum is the time since ``start_s``."""
        with self._lock:
            self._charge()
            return dict(self._spent_s)

    def _charge(self) -> None:
        now_s = self._clock()
        stage = max(self._computing, key=_ORDER.__getitem__) if self._computing else self._network
        self._spent_s[stage] += now_s - self._last_s
        self._last_s = now_s
