"""The oracle's round trip is the one that the emulated link has."""

from pathlib import Path

import pytest

from testbed.oracle_ttft import least_rtt_s
from testbed.trace import parse_trace

FLAT = parse_trace(b"time_s,rate_mbps\n0,8\n", Path("flat.csv"))
ORBIT = parse_trace(b"time_s,rate_mbps,delay_ms\n0,8,30\n10,8,13\n20,8,25\n", Path("orbit.csv"))


def test_both_ways_count():
    assert least_rtt_s(FLAT, 0.0, 5.0, 20.0) == pytest.approx(0.040)
    assert least_rtt_s(FLAT, 0.0, 5.0, 20.0, uplink_delay_ms=100.0) == pytest.approx(0.120)


def test_a_traces_own_delays_go_before_the_links_and_the_least_that_a_request_meets_counts():
    assert least_rtt_s(ORBIT, 0.0, 5.0, 20.0) == pytest.approx(0.060)
    assert least_rtt_s(ORBIT, 8.0, 5.0, 20.0) == pytest.approx(0.026)
    assert least_rtt_s(ORBIT, 25.0, 1e9, 20.0, uplink_delay_ms=1.0) == pytest.approx(0.014)
