"""A replay keeps the trace's moments and hides no failure."""

import itertools
import threading
import time
from pathlib import Path

import pytest

from testbed.errors import LinkError
from testbed.replay import LinkReplay
from testbed.trace import parse_trace

TRACE = parse_trace(b"time_s,rate_mbps,delay_ms\n0,10,5\n0.01,0,5\n0.03,30,7\n", Path("saw.csv"))


class Link:
    """A link that notes what it is told; ``enough`` is set after some steps."""

    def __init__(self, steps, broken_at=None):
        self.rates, self.delays = [], []
        self.enough = threading.Event()
        self._steps, self._broken_at = steps, broken_at

    def set_rate(self, rate_mbps):
        if len(self.rates) == self._broken_at:
            self.enough.set()
            raise LinkError("the interface is gone")
        self.rates.append(rate_mbps)
        if len(self.rates) > self._steps:
            self.enough.set()
        return max(0.5, rate_mbps)

    def set_delay(self, delay_ms):
        self.delays.append(delay_ms)


def replayed(link, offset_s):
    replay = LinkReplay(link)
    origin_s = time.monotonic() + 0.02
    replay.start(TRACE, offset_s, origin_s)
    assert link.enough.wait(10)
    return replay.stop(), origin_s


def test_steps_are_planned_at_absolute_moments_of_the_trace():
    log, origin_s = replayed(Link(steps=7), offset_s=0.02)

    expected = itertools.islice(TRACE.steps(0.02), len(log.steps))
    assert [step.planned_s for step in log.steps] == [origin_s + step.start_s for step in expected]
    # begun a moment sooner, for it takes one
    assert all(step.applied_s >= step.planned_s - 0.001 for step in log.steps)
    assert (log.trace_name, log.offset_s, log.origin_s) == ("saw", 0.02, origin_s)
    assert log.stopped_s >= log.steps[-1].applied_s


def test_log_holds_the_rate_in_force_where_the_link_has_a_floor():
    log, _ = replayed(Link(steps=4), offset_s=0.02)

    assert [step.rate_mbps for step in log.steps[:4]] == [0.5, 30, 10, 0.5]


def test_delay_is_set_when_it_changes_and_only_then():
    link = Link(steps=6)
    replayed(link, offset_s=0)

    assert link.delays[:3] == [5, 7, 5]


def test_failure_of_the_link_surfaces_when_the_replay_is_stopped():
    with pytest.raises(LinkError, match="the interface is gone"):
        replayed(Link(steps=9, broken_at=2), offset_s=0)


def test_one_link_takes_one_replay_after_the_other():
    replay = LinkReplay(Link(steps=0))
    for offset_s in (0.0, 0.03):
        replay.start(TRACE, offset_s, time.monotonic())

        assert replay.stop().offset_s == offset_s
