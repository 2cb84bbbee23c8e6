"""The netlink messages of a shaped class."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.errors import LinkError
from testbed.netlink import TICK_NS, HtbSetting, htb_options, parse_htb_options


@given(st.integers(500_000, 100_000_000_000), st.integers(3028, 10_000_000))
def test_setting_survives_the_round_trip_to_a_tick(rate_bps, burst_bytes):
    found = parse_htb_options(htb_options(HtbSetting(rate_bps, burst_bytes, 3028)))

    assert 0 <= rate_bps - found.rate_bps < 8  # the kernel counts whole bytes per second
    assert abs(found.burst_bytes - burst_bytes) <= TICK_NS * rate_bps / 8e9 + 1
    assert found.quantum_bytes == 3028


def test_class_that_may_exceed_its_rate_is_refused():
    options = bytearray(htb_options(HtbSetting(8_000_000, 3028, 3028)))
    ceil_at = 4 + 12 + 8  # attribute header, struct tc_ratespec of the rate, start of the ceiling's
    options[ceil_at : ceil_at + 4] = struct.pack("=I", 2_000_000)

    with pytest.raises(LinkError, match="a rate of 1000000 and a ceiling of 2000000"):
        parse_htb_options(bytes(options))
