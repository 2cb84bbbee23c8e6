"""The relay's order and accounts, on real sockets that need no privilege."""

import socket

import pytest

from testbed.link_settings import Way
from testbed.relay import LATE_BINS, Direction, late_ms


@pytest.fixture
def way():
    """Makes a Direction between two socket pairs; and the outer ends of those."""
    arrive, source = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sink, leave = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in (source, sink, leave):
        end.setblocking(False)
    with arrive, source, sink, leave:
        yield lambda **way: Direction(source, sink, Way(**way), seed=1), arrive, leave


def test_frame_waits_for_its_delay(way):
    make, arrive, leave = way
    direction = make(delay_ms=60_000)
    arrive.send(b"frame")
    direction.accept()

    assert direction.deliver() == pytest.approx(60.0, abs=5.0)
    with pytest.raises(BlockingIOError):
        leave.recv(100)


def test_no_frame_overtakes_another_when_the_delay_shrinks(way):
    make, arrive, leave = way
    direction = make(delay_ms=50)
    arrive.send(b"first")
    direction.accept()
    direction.delay_s = 0.0
    arrive.send(b"second")
    direction.accept()

    while direction.passed < 2:
        direction.deliver()

    assert [leave.recv(100), leave.recv(100)] == [b"first", b"second"]


def test_frame_that_cannot_leave_is_counted_as_lost(way):
    make, arrive, leave = way
    direction = make(delay_ms=0)
    leave.close()
    arrive.send(b"frame")
    direction.accept()
    direction.deliver()

    assert (direction.passed, direction.refused, direction.lost) == (0, 1, 0)


def test_frames_lost_on_purpose_are_counted_apart_and_never_leave(way):
    make, arrive, leave = way
    direction = make(delay_ms=0, loss=0.3)
    numbers = []
    for number in range(200):
        arrive.send(b"%d" % number)
        direction.accept()
        direction.deliver()
        if direction.passed > len(numbers):
            numbers.append(int(leave.recv(100)))

    assert (direction.passed + direction.lost, direction.refused) == (200, 0)
    assert 30 < direction.lost < 90
    assert numbers == sorted(numbers)


def test_jitter_draws_another_delay_for_each_frame_and_keeps_their_order(way):
    make, arrive, leave = way
    direction = make(delay_ms=20, jitter_ms=20)
    for number in range(20):
        arrive.send(b"%d" % number)
    for _ in range(2):  # a batch is 16
        direction.accept()
    while direction.passed < 20:
        direction.deliver()

    assert [int(leave.recv(100)) for _ in range(20)] == list(range(20))


def test_lateness_is_read_from_the_bins():
    bins = [0] * LATE_BINS
    bins[0], bins[30] = 98, 2

    assert (late_ms(bins, 0.5), late_ms(bins, 0.99), late_ms(bins, 1.0)) == (0.1, 3.1, 3.1)
    assert late_ms([0] * LATE_BINS, 0.99) == 0.0
