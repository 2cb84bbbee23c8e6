"""The virtual link: every byte of the trace's capacity, no more, shared alike."""

import itertools
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.trace import BYTES_PER_MBIT, parse_trace
from testbed.virtual_link import PAYLOAD_SHARE, LinkFuture, VirtualLink

BYTES_PER_S_AND_MBPS = BYTES_PER_MBIT * PAYLOAD_SHARE


def make_trace(*rows):
    return parse_trace(("time_s,rate_mbps\n" + "".join(f"{t},{r}\n" for t, r in rows)).encode(), Path("t.csv"))


@st.composite
def futures(draw):
    steps = draw(st.lists(st.floats(0.01, 3), min_size=1, max_size=8))
    rates = draw(st.lists(st.just(0.0) | st.floats(0.5, 200), min_size=len(steps), max_size=len(steps)))
    times = [0.0, *itertools.accumulate(steps[:-1])]
    trace = make_trace(*zip(times, [*rates[:-1], max(1.0, rates[-1])], strict=True))
    return LinkFuture(trace, draw(st.floats(0, 20)))


@settings(deadline=None)
@given(futures(), st.floats(0, 30), st.floats(1, 1e8))
def test_arrival_is_the_inverse_of_delivery(future, start_s, size_bytes):
    arrival_s = future.arrival_s(start_s, size_bytes)

    assert arrival_s > start_s
    arrived_bytes = future.delivered_bytes(arrival_s) - future.delivered_bytes(start_s)
    assert arrived_bytes == pytest.approx(size_bytes, rel=1e-6, abs=0.1)


@given(futures(), st.floats(0, 30))
def test_nothing_takes_no_time(future, start_s):
    assert future.arrival_s(start_s, 0) == pytest.approx(start_s)
    assert future.delivered_bytes(0.0) == 0.0


def test_capacity_is_that_of_the_trace_less_headers_and_an_outage_brings_nothing():
    future = LinkFuture(make_trace((0, 8), (1, 0), (2, 16)), 0.5)

    assert future.delivered_bytes(0.5) == pytest.approx(4 * BYTES_PER_S_AND_MBPS)
    assert future.delivered_bytes(1.5) == pytest.approx(4 * BYTES_PER_S_AND_MBPS)
    # the trace begins again after three seconds
    assert future.delivered_bytes(3.5) == pytest.approx((4 + 16 + 8) * BYTES_PER_S_AND_MBPS)


def test_an_object_begins_to_arrive_a_round_trip_after_its_request():
    link = VirtualLink(LinkFuture(make_trace((0, 8)), 0.0), 0.1)
    link.request("a", 10**6)

    assert link.advance(0.1) == {}
    assert link.advance(0.2)["a"] == pytest.approx(0.1 * 8 * BYTES_PER_S_AND_MBPS)


def test_a_small_object_leaves_its_share_to_the_others():
    link = VirtualLink(LinkFuture(make_trace((0, 8)), 0.0), 0.0)
    for key, size_bytes in (("large", 10**9), ("small", 1000), ("also large", 10**9)):
        link.request(key, size_bytes)
    arrived = link.advance(1.0)

    rest_bytes = 8 * BYTES_PER_S_AND_MBPS - 1000
    assert arrived == pytest.approx({"large": rest_bytes / 2, "small": 1000, "also large": rest_bytes / 2})
    assert link.is_whole("small")
    assert not link.is_whole("large")


def test_what_is_given_up_takes_nothing_of_the_link():
    link = VirtualLink(LinkFuture(make_trace((0, 8)), 0.0), 0.0)
    link.request("a", 10**9)
    link.request("b", 10**9)
    link.cancel("a")

    assert link.advance(1.0) == pytest.approx({"b": 8 * BYTES_PER_S_AND_MBPS})


@settings(deadline=None)
@given(
    futures(), st.lists(st.tuples(st.integers(1, 10**6), st.integers(0, 40)), min_size=1, max_size=6), st.floats(0, 0.3)
)
def test_no_byte_is_lost_and_none_is_made(future, objects, rtt_s):
    link, arrived = VirtualLink(future, rtt_s), dict.fromkeys(range(len(objects)), 0.0)
    for tick in range(1, 61):
        for key, (size_bytes, asked) in enumerate(objects):
            if asked == tick - 1:
                link.request(key, size_bytes)
        for key, part in link.advance(tick * 0.05).items():
            arrived[key] += part
        assert sum(arrived.values()) <= future.delivered_bytes(tick * 0.05) + 0.1

    for key, (size_bytes, asked) in enumerate(objects):
        assert arrived[key] <= size_bytes + 1e-3
        if asked < 60 and link.is_whole(key):
            assert arrived[key] == pytest.approx(size_bytes)
