"""The relay's processor and the masks that keep other work off it."""

import os

import pytest

from testbed.steering import join_wait_ns, processor_mask, relay_processor


@pytest.mark.parametrize(
    ("processors", "mask"),
    [({0}, "00000001"), ({0, 1, 5}, "00000023"), ({33, 0}, "00000002,00000001"), (set(), "00000000")],
)
def test_masks_are_words_of_32_the_highest_first(processors, mask):
    assert processor_mask(processors) == mask


@pytest.mark.parametrize(("delay_ms", "wait_us"), [(0, 100), (4, 100), (10, 200), (20, 400), (25, 500), (300, 500)])
def test_segments_wait_for_a_fiftieth_of_the_delay_within_limits(delay_ms, wait_us):
    assert join_wait_ns(delay_ms) == wait_us * 1000


def test_the_relay_keeps_to_one_processor_unless_there_is_but_one():
    allowed = os.sched_getaffinity(0)
    assert relay_processor() == (max(allowed) if len(allowed) > 1 else None)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        assert relay_processor() is None
    finally:
        os.sched_setaffinity(0, allowed)
