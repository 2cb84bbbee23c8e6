"""Which connection a fetch gets, and when it waits for one rather than have another made."""

import asyncio

import pytest

from cachegen import StoreUnavailableError
from cachegen.sources.connection_pool import ConnectionPool

LONG_S = 30.0


class FakeConnection:
    def __init__(self):
        self.carried_bytes, self.is_open, self.took_s, self.ends_s = 0, False, 0.0, None
        self.closed = False

    async def close(self):
        self.closed = True


class Turn:
    """A fetch that holds its connection until it is told to end."""

    def __init__(self, pool, *, long=True):
        self.connection, self._end, self._whole = None, asyncio.Event(), True
        self.begun = asyncio.Event()
        self.task = asyncio.ensure_future(self._run(pool, long))

    async def _run(self, pool, long):
        async with pool.turn(long=long) as self.connection:
            self.begun.set()
            await self._end.wait()
            self.connection.is_open = self._whole

    async def ends(self, *, whole=True):
        self._whole = whole
        self._end.set()
        await self.task


def run(steps, limit=8):
    made = []

    def make():
        made.append(FakeConnection())
        return made[-1]

    async def inside():
        async with asyncio.timeout(20):
            await steps(ConnectionPool("here", make, limit), made)

    asyncio.run(inside())


async def two_busy(pool, *, in_s=0.5, took_s=LONG_S):
    """Two long objects on their way, the first of which should be whole in so many seconds."""
    turns = [Turn(pool), Turn(pool)]
    for turn in turns:
        await turn.begun.wait()
    first = turns[0].connection
    first.took_s = took_s
    first.ends_s = None if in_s is None else asyncio.get_running_loop().time() + in_s
    return turns


def test_a_long_object_waits_for_the_connection_that_is_about_to_be_free():
    async def steps(pool, made):
        first, second = await two_busy(pool)
        third = Turn(pool)
        await asyncio.sleep(0.02)
        assert third.connection is None
        await first.ends()
        await third.begun.wait()
        assert third.connection is made[0]
        assert len(made) == 2
        await third.ends()
        await second.ends()

    run(steps)


@pytest.mark.parametrize(
    ("long", "in_s", "took_s"), [(False, 0.5, LONG_S), (True, None, LONG_S), (True, 0.5, 0.4), (True, 0.5, 0.0)]
)
def test_nothing_else_waits(long, in_s, took_s):
    async def steps(pool, made):
        turns = await two_busy(pool, in_s=in_s, took_s=took_s)
        third = Turn(pool, long=long)
        await third.begun.wait()
        assert third.connection is made[2]
        for turn in (*turns, third):
            await turn.ends()

    run(steps)


def test_where_there_is_but_one_connection_a_second_is_made():
    async def steps(pool, made):
        only = Turn(pool)
        await only.begun.wait()
        only.connection.took_s, only.connection.ends_s = LONG_S, 0.0
        second = Turn(pool)
        await second.begun.wait()
        assert second.connection is made[1]
        await only.ends()
        await second.ends()

    run(steps)


def test_only_one_waits_for_each_connection():
    async def steps(pool, made):
        first, second = await two_busy(pool)
        third, fourth = Turn(pool), Turn(pool)
        await fourth.begun.wait()
        assert (third.connection, fourth.connection) == (None, made[2])
        await first.ends()
        await third.begun.wait()
        assert third.connection is made[0]
        for turn in (second, third, fourth):
            await turn.ends()

    run(steps)


def test_it_waits_no_longer_than_a_new_connection_would_take():
    async def steps(pool, made):
        turns = await two_busy(pool, in_s=0.01, took_s=0.05)
        before_s = asyncio.get_running_loop().time()
        third = Turn(pool)
        await third.begun.wait()
        assert asyncio.get_running_loop().time() - before_s > 0.04
        assert third.connection is made[2]
        for turn in (*turns, third):
            await turn.ends()

    run(steps)


def test_an_object_that_breaks_off_holds_nobody_up():
    async def steps(pool, made):
        first, second = await two_busy(pool)
        third = Turn(pool)
        await asyncio.sleep(0.01)
        await first.ends(whole=False)
        # it makes a new connection in the place of that
        await third.begun.wait()
        assert third.connection is made[0]
        await second.ends()
        await third.ends()

    run(steps)


def test_one_that_was_given_up_while_it_waited_leaves_its_place_to_another():
    async def steps(pool, made):
        first, second = await two_busy(pool)
        given_up = Turn(pool)
        await asyncio.sleep(0.01)
        given_up.task.cancel()
        await asyncio.gather(given_up.task, return_exceptions=True)
        third = Turn(pool)
        await asyncio.sleep(0.01)
        assert third.connection is None
        await first.ends()
        await third.begun.wait()
        for turn in (second, third):
            await turn.ends()
        assert len(made) == 2

    run(steps)


def test_a_pool_that_is_closed_wakes_those_that_wait():
    async def steps(pool, made):
        turns = await two_busy(pool)
        third = Turn(pool)
        await asyncio.sleep(0.01)
        await pool.close()
        with pytest.raises(StoreUnavailableError, match=r"^here: this source is closed$"):
            await third.task
        assert [connection.closed for connection in made] == [True, True]
        for turn in turns:
            await turn.ends()

    run(steps)


def test_no_more_are_made_than_may_be():
    async def steps(pool, made):
        turns = [Turn(pool) for _ in range(3)]
        for turn in turns[:2]:
            await turn.begun.wait()
        await asyncio.sleep(0.01)
        assert turns[2].connection is None
        for turn in turns:
            await turn.ends()
        assert len(made) == 2

    run(steps, limit=2)
