"""How a rate becomes a setting of the shaper."""

import pytest

from testbed.netlink import tbf_options
from testbed.shaper import FRAME_BYTES, gate_setting, htb_setting, queue_limit, shaper_commands
from testbed.trace import RATE_FLOOR_MBPS, replayed_mbps


def test_a_rate_below_the_floor_becomes_the_floor_and_an_outage_stays_one():
    assert htb_setting(0.01).rate_bps == RATE_FLOOR_MBPS * 1e6
    assert [replayed_mbps(rate) for rate in (0.0, 0.01, 5.0)] == [0.0, RATE_FLOOR_MBPS, 5.0]


def test_a_shut_gate_holds_a_whole_frame_for_minutes_within_the_kernels_clock():
    shut = gate_setting(is_open=False, queue_bytes=100_000)
    burst_s = shut.burst_bytes * 8 / shut.rate_bps

    assert shut.burst_bytes >= FRAME_BYTES
    assert 60 < burst_s < 64e-9 * 2**32
    # the open rate needs the 64 bits that only one attribute has
    assert len(tbf_options(gate_setting(is_open=True, queue_bytes=100_000))) > len(tbf_options(shut))


@pytest.mark.parametrize(
    ("rate_mbps", "burst_bytes"),
    [(0.1, 2 * FRAME_BYTES), (4, 2 * FRAME_BYTES), (20, 12_500), (100, 62_500), (1000, 625_000)],
)
def test_burst_is_two_frames_or_a_moment_of_the_rate(rate_mbps, burst_bytes):
    assert htb_setting(rate_mbps).burst_bytes == burst_bytes


def test_every_frame_goes_through_the_shaped_class_and_its_bounded_queue():
    commands = [" ".join(command) for command in shaper_commands("eth9", htb_setting(20), 100_000, "bfifo")]

    assert commands[0] == "ip link set dev eth9 gso_max_segs 1"
    assert "root handle 5: htb default 1" in commands[1]
    assert "classid 5:1 htb rate 20000000bit ceil 20000000bit" in commands[2]
    assert "parent 5:1 handle 10: tbf rate 100000000000bit" in commands[3]
    assert commands[4].endswith("parent 10:1 handle 20: bfifo limit 100000")


def test_disciplines_that_count_packets_get_as_many_as_the_bytes_hold():
    assert [queue_limit(name, 151_400) for name in ("bfifo", "codel", "fq_codel")] == [151_400, 100, 100]
