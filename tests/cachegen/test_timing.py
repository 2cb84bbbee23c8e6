"""How long work takes, and one core for every thread of the process."""

import os
import threading
from pathlib import Path

import pytest

from cachegen.benchmark import timing
from cachegen.benchmark.timing import one_core


@pytest.fixture
def sleeper():
    """Number of a thread that waits, and how to end it."""
    end = threading.Event()
    thread = threading.Thread(target=end.wait)
    thread.start()

    def stop():
        end.set()
        thread.join()

    yield thread.native_id, stop
    stop()


def test_every_thread_has_the_same_core_meanwhile_and_its_own_ones_again(sleeper):
    number, _ = sleeper
    before = os.sched_getaffinity(number)
    with one_core():
        assert os.sched_getaffinity(number) == os.sched_getaffinity(0) == {min(before)}
    assert os.sched_getaffinity(number) == before


def test_a_thread_that_ends_meanwhile_is_no_error(sleeper):
    _, stop = sleeper
    with one_core():
        stop()


def test_a_thread_that_has_ended_since_it_was_listed_is_no_error(sleeper, monkeypatch):
    number, stop = sleeper
    listed = Path("/proc/self/task").iterdir()

    class Listing:
        def __init__(self, _path):
            self.stopped = stop()

        def iterdir(self):
            return [*listed, Path(f"/proc/self/task/{number}")]

    monkeypatch.setattr(timing, "Path", Listing)
    with one_core():
        pass


def test_pieces_of_work_take_turns_and_each_has_the_median_of_its_own_passes(monkeypatch):
    calls, clock = [], iter(range(1000))
    monkeypatch.setattr(timing.time, "perf_counter", lambda: next(clock))

    def slow():
        calls.append("slow")
        # the first round, which does not count, takes longest
        for _ in range(40 if calls.count("slow") == 1 else 4):
            next(clock)

    assert timing.timed_in_turns([lambda: calls.append("fast"), slow], rounds=3) == [1, 5]
    assert calls == ["fast", "slow"] * 4
