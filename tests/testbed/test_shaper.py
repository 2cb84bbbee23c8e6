"""How a rate becomes a setting of the shaper."""

import pytest

from testbed.shaper import FRAME_BYTES, RATE_FLOOR_MBPS, htb_setting, shaper_commands


def test_outage_becomes_the_floor():
    assert htb_setting(0.0).rate_bps == RATE_FLOOR_MBPS * 1e6


@pytest.mark.parametrize(
    ("rate_mbps", "burst_bytes"),
    [(0.5, 2 * FRAME_BYTES), (4, 2 * FRAME_BYTES), (20, 12_500), (100, 62_500), (1000, 625_000)],
)
def test_burst_is_two_frames_or_a_moment_of_the_rate(rate_mbps, burst_bytes):
    assert htb_setting(rate_mbps).burst_bytes == burst_bytes


def test_every_frame_goes_through_the_shaped_class_and_its_bounded_queue():
    commands = [" ".join(command) for command in shaper_commands("eth9", htb_setting(20), 100_000)]

    assert commands[0] == "ip link set dev eth9 gso_max_segs 1"
    assert "root handle 5: htb default 1" in commands[1]
    assert "classid 5:1 htb rate 20000000bit ceil 20000000bit" in commands[2]
    assert commands[3].endswith("parent 5:1 handle 10: bfifo limit 100000")
