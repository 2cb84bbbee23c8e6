"""Watch a link while a run goes on: its counters every few milliseconds, kept in compact columns."""

import threading
import time
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass

from cachegen import CachegenError
from testbed.priority import raise_priority

# Fine enough that a queue which ran empty and filled again between two samples is rare.
SAMPLE_PERIOD_S = 0.005


@dataclass(frozen=True)
class LinkReading:
    """One look at a link.

    Parameters
    ----------
    time_s : float
        CLOCK_MONOTONIC.
    received_bytes : int
        Bytes that have arrived at the receiver's interface, in Ethernet frames.
    sent_bytes : int
        Bytes that the shaper has put on the line.
    backlog_bytes : int
        Bytes waiting in the shaper's queue at this moment.
    drops : int
        Packets refused so far because the queue was full.
    """

    time_s: float
    received_bytes: int
    sent_bytes: int
    backlog_bytes: int
    drops: int


@dataclass(frozen=True)
class LinkSamples:
    """Readings as columns of equal length, in order of time."""

    time_s: "array[float]"
    received_bytes: "array[int]"
    sent_bytes: "array[int]"
    backlog_bytes: "array[int]"
    drops: "array[int]"

    def __len__(self) -> int:
        return len(self.time_s)

    def reading(self, index: int) -> LinkReading:
        """Return one reading."""
        return LinkReading(
            self.time_s[index],
            self.received_bytes[index],
            self.sent_bytes[index],
            self.backlog_bytes[index],
            self.drops[index],
        )

    def window(self, start_s: float, end_s: float) -> "LinkSamples":
        """Return the readings of a span of CLOCK_MONOTONIC, and one beyond each end where there is one."""
        first = max(0, bisect_right(self.time_s, start_s) - 1)
        last = bisect_left(self.time_s, end_s) + 1
        return LinkSamples(
            self.time_s[first:last],
            self.received_bytes[first:last],
            self.sent_bytes[first:last],
            self.backlog_bytes[first:last],
            self.drops[first:last],
        )


def empty_samples() -> LinkSamples:
    """Return columns without a reading."""
    return LinkSamples(array("d"), array("q"), array("q"), array("q"), array("q"))


def append_reading(samples: LinkSamples, reading: LinkReading) -> None:
    """Add one reading at the end; about 40 bytes each, 30 MB in an hour."""
    # time last: a reader that sees the time sees the whole row
    samples.received_bytes.append(reading.received_bytes)
    samples.sent_bytes.append(reading.sent_bytes)
    samples.backlog_bytes.append(reading.backlog_bytes)
    samples.drops.append(reading.drops)
    samples.time_s.append(reading.time_s)


class LinkSampler:
    """A thread that reads a link at absolute moments, one period apart.

    Parameters
    ----------
    read_link : callable
        Returns the reading of now, as ``EmulatedNetwork.read_link`` does; called by this thread only.
    period_s : float
        Time between readings.
    """

    def __init__(self, read_link: Callable[[], LinkReading], period_s: float = SAMPLE_PERIOD_S) -> None:
        self._read_link = read_link
        self._period_s = period_s
        self._samples = empty_samples()
        self._stopping = threading.Event()
        self._error: CachegenError | OSError | None = None
        self._thread = threading.Thread(target=self._run, name="link sampler", daemon=True)

    def start(self) -> None:
        """Begin to sample."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread; an error that ended it early is raised here."""
        early = not self._thread.is_alive()
        self._stopping.set()
        self._thread.join()
        if self._error is not None:
            raise self._error
        assert not early, "the sampler's thread ended by a bug of ours; its traceback is on stderr"

    def since(self, start_s: float) -> LinkSamples:
        """Return the readings from the last one before ``start_s`` on."""
        return self.window(start_s, float("inf"))

    def window(self, start_s: float, end_s: float) -> LinkSamples:
        """Return the readings of a span of CLOCK_MONOTONIC, and one beyond each end where there is one."""
        return self._samples.window(start_s, end_s)

    def _run(self) -> None:
        # a reading takes some 40 us; one that comes late leaves a gap, of which nothing is known
        raise_priority()
        due_s = time.monotonic()
        try:
            while not self._stopping.wait(max(0.0, due_s - time.monotonic())):
                append_reading(self._samples, self._read_link())
                # readings that could not be taken in time are left out, not made up for
                due_s = max(due_s + self._period_s, time.monotonic())
        except (CachegenError, OSError) as error:
            self._error = error
