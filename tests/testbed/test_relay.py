"""The relay's order and accounts, on real sockets that need no privilege."""

import socket

import pytest

from testbed.relay import LATE_BINS, Direction, late_ms


@pytest.fixture
def way():
    """A Direction between two socket pairs, and the outer ends of those."""
    arrive, source = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sink, leave = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in (source, sink, leave):
        end.setblocking(False)
    with arrive, source, sink, leave:
        yield Direction(source, sink), arrive, leave


def test_frame_waits_for_its_delay(way):
    direction, arrive, leave = way
    arrive.send(b"frame")
    direction.accept(delay_s=60.0)

    assert direction.deliver() == pytest.approx(60.0, abs=5.0)
    with pytest.raises(BlockingIOError):
        leave.recv(100)


def test_no_frame_overtakes_another_when_the_delay_shrinks(way):
    direction, arrive, leave = way
    arrive.send(b"first")
    direction.accept(delay_s=0.05)
    arrive.send(b"second")
    direction.accept(delay_s=0.0)

    while direction.frames < 2:
        direction.deliver()

    assert [leave.recv(100), leave.recv(100)] == [b"first", b"second"]


def test_frame_that_cannot_leave_is_counted_as_lost(way):
    direction, arrive, leave = way
    leave.close()
    arrive.send(b"frame")
    direction.accept(delay_s=0.0)
    direction.deliver()

    assert (direction.frames, direction.refused) == (0, 1)


def test_lateness_is_read_from_the_bins():
    bins = [0] * LATE_BINS
    bins[0], bins[30] = 98, 2

    assert (late_ms(bins, 0.5), late_ms(bins, 0.99), late_ms(bins, 1.0)) == (0.1, 3.1, 3.1)
    assert late_ms([0] * LATE_BINS, 0.99) == 0.0
