"""Samples of a link: spans of them, and a reader that fails."""

import threading

import pytest

from testbed.errors import LinkError
from testbed.sampler import LinkReading, LinkSampler, append_reading, empty_samples


def readings(times):
    samples = empty_samples()
    for time_s in times:
        append_reading(samples, LinkReading(time_s, int(time_s * 100), 0, 5, 0))
    return samples


@pytest.mark.parametrize(
    ("start_s", "end_s", "expected"),
    [(2.5, 4.5, [2, 3, 4, 5]), (0, 2, [1, 2]), (5, 99, [5]), (3, 3, [3]), (-2, -1, [1])],
)
def test_window_holds_one_reading_beyond_each_end(start_s, end_s, expected):
    window = readings([1, 2, 3, 4, 5]).window(start_s, end_s)

    assert list(window.time_s) == expected
    assert list(window.received_bytes) == [time_s * 100 for time_s in expected]


def test_window_of_no_samples_is_empty():
    assert len(empty_samples().window(0, 10)) == 0


def test_sampler_keeps_readings_in_order_of_time():
    enough = threading.Event()
    clock = iter(range(1_000_000))

    def read_link():
        now = next(clock)
        if now > 5:
            enough.set()
        return LinkReading(float(now), now, now, 0, 0)

    sampler = LinkSampler(read_link, period_s=0.001)
    sampler.start()
    assert enough.wait(10)
    sampler.stop()

    assert list(sampler.since(0).time_s)[:6] == [0, 1, 2, 3, 4, 5]


def test_failure_of_the_reader_surfaces_when_the_sampler_is_stopped():
    failed = threading.Event()

    def read_link():
        failed.set()
        raise LinkError("no answer from the kernel")

    sampler = LinkSampler(read_link)
    sampler.start()
    assert failed.wait(10)
    with pytest.raises(LinkError, match="no answer from the kernel"):
        sampler.stop()
