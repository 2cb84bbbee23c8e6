"""What a link can be asked to be, and what is refused by name."""

import pytest

from cachegen import InvalidInputError
from testbed.link_settings import LinkSettings, Way


def test_the_way_back_is_like_the_way_down_unless_told_otherwise():
    same = LinkSettings(delay_ms=10, loss=0.01, jitter_ms=2)
    other = LinkSettings(delay_ms=10, loss=0.01, uplink_delay_ms=30, uplink_loss=0.0)

    assert same.up == same.down == Way(10, 2, 0.01, 1.0)
    assert (other.up.delay_ms, other.up.loss, other.rtt_ms) == (30, 0.0, 40)


def test_bytes_are_counted_at_the_receiver_unless_frames_are_lost_or_held_up_on_purpose():
    assert LinkSettings(delay_ms=10, uplink_loss=0.1).counted_delay_s == 0.01
    assert LinkSettings(delay_ms=10, loss=0.1).counted_delay_s is None
    assert LinkSettings(delay_ms=10, jitter_ms=1).counted_delay_s is None


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"delay_ms": -1}, "delay_ms must be from 0 to 1000, not -1"),
        ({"delay_ms": float("nan")}, "delay_ms must be from 0 to 1000, not nan"),
        ({"delay_ms": 5, "jitter_ms": 6}, r"jitter_ms must be from 0 to 5 \(5 is the delay\), not 6"),
        ({"delay_ms": 5, "uplink_delay_ms": 1, "jitter_ms": 2}, "jitter_ms must be from 0 to 1"),
        ({"loss": 0.5}, "loss must be from 0 to 0.3, not 0.5"),
        ({"uplink_loss": -0.1}, "uplink_loss must be from 0 to 0.3"),
        ({"loss_burst_frames": 0.5}, "loss_burst_frames must be from 1 to 1000"),
        ({"queue_bytes": 100}, "queue_bytes must be from 3028 to"),
        ({"uplink_mbps": 0}, "uplink_mbps must be from 0.1 to"),
        ({"queue_discipline": "red"}, "queue_discipline must be one of bfifo, codel, fq_codel, not 'red'"),
    ],
)
def test_a_bad_value_is_refused_by_name(settings, message):
    with pytest.raises(InvalidInputError, match=message):
        LinkSettings(**settings)
