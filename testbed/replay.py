"""Replay a trace on a link: a thread that sets each step at its absolute moment and notes when it did."""

import threading
import time
from dataclasses import dataclass
from typing import Protocol

from cachegen import CachegenError
from testbed.priority import raise_priority
from testbed.trace import Trace


class AdjustableLink(Protocol):
    """What a replay needs of a link."""

    def set_rate(self, rate_mbps: float) -> float:
        """Change the rate; return the one now in force."""

    def set_delay(self, delay_ms: float) -> None:
        """Change the one-way delay."""


@dataclass(frozen=True)
class ReplayStep:
    """One step of a replay; times are CLOCK_MONOTONIC, the rate is the one then in force, floor included."""

    planned_s: float
    applied_s: float
    rate_mbps: float
    delay_ms: float | None


@dataclass(frozen=True)
class ReplayLog:
    """What a replay did: the trace was at ``offset_s`` when the clock showed ``origin_s``."""

    trace_name: str
    offset_s: float
    origin_s: float
    stopped_s: float
    steps: tuple[ReplayStep, ...]


class LinkReplay:
    """Replays traces on one link, one at a time."""

    def __init__(self, link: AdjustableLink) -> None:
        self._link = link
        self._running: _Run | None = None

    def start(self, trace: Trace, offset_s: float, origin_s: float) -> None:
        """Begin a replay in the background.

        Parameters
        ----------
        trace : Trace
            Repeats for as long as the replay lasts.
        offset_s : float
            Where in the trace the replay begins.
        origin_s : float
            CLOCK_MONOTONIC moment of that beginning, best a few milliseconds ahead. Until then the link keeps
            the rate it has.
        """
        assert self._running is None, "one replay at a time"
        self._running = _Run(self._link, trace, offset_s, origin_s)
        self._running.start()

    def stop(self) -> ReplayLog:
        """End the replay and return its log; the link keeps its last rate. Raise the thread's error, if any."""
        assert self._running is not None, "no replay to stop"
        run, self._running = self._running, None
        return run.stop()

    def interrupt(self) -> None:
        """Let nothing pass from now on, whatever the trace says; the log has it as a step."""
        assert self._running is not None, "no replay to interrupt"
        self._running.interrupt()

    def resume(self) -> None:
        """Follow the trace again."""
        assert self._running is not None, "no replay to resume"
        self._running.resume()


# Between waking up and the first frame at the new rate, about: a step is begun so much sooner.
_SETTING_S = 0.00025


class _Run(threading.Thread):
    def __init__(self, link: AdjustableLink, trace: Trace, offset_s: float, origin_s: float) -> None:
        super().__init__(name="link replay", daemon=True)
        self._link = link
        self._trace = trace
        self._offset_s = offset_s
        self._origin_s = origin_s
        self._steps: list[ReplayStep] = []
        # an interruption comes from another thread than the trace's steps
        self._setting = threading.Lock()
        self._interrupted = False
        self._wanted: tuple[float, float | None] | None = None
        self._stopping = threading.Event()
        self._error: CachegenError | OSError | None = None

    def run(self) -> None:
        raise_priority()
        try:
            self._replay()
        except (CachegenError, OSError) as error:
            self._error = error

    def stop(self) -> ReplayLog:
        # a trace has no end: without stop() the thread runs on
        early = not self.is_alive()
        self._stopping.set()
        self.join()
        if self._error is not None:
            raise self._error
        assert not early, "the replay's thread ended by a bug of ours; its traceback is on stderr"
        return ReplayLog(self._trace.name, self._offset_s, self._origin_s, time.monotonic(), tuple(self._steps))

    def _replay(self) -> None:
        delay_ms = None
        for step in self._trace.steps(self._offset_s):
            planned_s = self._origin_s + step.start_s
            if self._stopping.wait(max(0.0, planned_s - _SETTING_S - time.monotonic())):
                return
            with self._setting:
                self._wanted = step.rate_mbps, step.delay_ms
                self._set_rate(planned_s)
                if step.delay_ms is not None and step.delay_ms != delay_ms:
                    self._link.set_delay(step.delay_ms)
                    delay_ms = step.delay_ms

    def interrupt(self) -> None:
        with self._setting:
            self._interrupted = True
            self._set_rate(time.monotonic())

    def resume(self) -> None:
        with self._setting:
            self._interrupted = False
            self._set_rate(time.monotonic())

    def _set_rate(self, planned_s: float) -> None:
        """Set what the trace wants, or nothing; note it in order of time, though an interruption came in between."""
        if self._wanted is None:  # the trace has not begun, and will set its own
            return
        rate_mbps, delay_ms = self._wanted
        in_force_mbps = self._link.set_rate(0.0 if self._interrupted else rate_mbps)
        if self._steps:
            planned_s = max(planned_s, self._steps[-1].planned_s)
        self._steps.append(ReplayStep(planned_s, time.monotonic(), in_force_mbps, delay_ms))
