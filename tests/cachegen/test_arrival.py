"""How the body of an answer arrives, and when it is left to gather."""

import asyncio
from types import SimpleNamespace

import aiohttp
import pytest

from cachegen.sources.arrival import Arrival, let_gather

MIB = 1 << 20


def test_an_end_is_expected_at_the_rate_so_far():
    arrival = Arrival(4000, 10.0)
    assert arrival.ends_s(10.5) is None
    arrival.add(1000)
    assert arrival.ends_s(11.0) == pytest.approx(14.0)
    arrival.add(3000)
    assert arrival.ends_s(12.0) == pytest.approx(12.0)


def test_where_no_length_is_known_nothing_is_expected_and_nothing_gathers():
    arrival = Arrival(None, 10.0)
    arrival.add(1000)
    assert arrival.ends_s(11.0) is None
    assert not arrival.may_gather(11.0)


@pytest.mark.parametrize(
    ("length_bytes", "received_bytes", "after_s", "gathers"),
    [
        # 50 Mbit/s, 100 Mbit/s, 110 Mbit/s
        (4 * MIB, MIB, 8 / 50 * 1.048576, True),
        (4 * MIB, MIB, 8 / 100 * 1.048576, True),
        (4 * MIB, MIB, 8 / 110 * 1.048576, False),
        # the head has just come
        (4 * MIB, 1000, 0.0, False),
        # the rest is small
        (MIB, MIB - 65_536, 1.0, False),
        (MIB, MIB - 65_537, 1.0, True),
    ],
)
def test_slow_and_long_bodies_gather(length_bytes, received_bytes, after_s, gathers):
    arrival = Arrival(length_bytes, 5.0)
    arrival.add(received_bytes)
    assert arrival.may_gather(5.0 + after_s) is gathers


class Transport:
    def __init__(self, *, reading=True, closing=False):
        self.said, self._reading, self._closing = [], reading, closing

    def is_reading(self):
        return self._reading

    def is_closing(self):
        return self._closing

    def pause_reading(self):
        self.said.append("pause")

    def resume_reading(self):
        self.said.append("resume")


def gather(transport, *, has_connection=True, cancel=False):
    async def inside():
        connection = SimpleNamespace(transport=transport) if has_connection else None
        task = asyncio.ensure_future(let_gather(SimpleNamespace(connection=connection)))
        await asyncio.sleep(0)
        in_between = list(transport.said) if transport else []
        if cancel:
            task.cancel()
        await asyncio.gather(task, return_exceptions=cancel)
        return in_between

    return asyncio.run(inside())


@pytest.mark.parametrize("cancel", [False, True])
def test_the_transport_is_paused_meanwhile_and_read_again_after(cancel):
    transport = Transport()
    assert gather(transport, cancel=cancel) == ["pause"]
    assert transport.said == ["pause", "resume"]


def test_a_transport_that_is_paused_already_is_left_alone():
    transport = Transport(reading=False)
    gather(transport)
    assert transport.said == []


def test_an_answer_that_is_whole_has_nothing_to_wait_for():
    assert gather(None) == []
    assert gather(None, has_connection=False) == []


def test_a_connection_that_was_closed_meanwhile_is_an_error_of_the_connection():
    with pytest.raises(aiohttp.ClientConnectionError):
        gather(Transport(closing=True))
