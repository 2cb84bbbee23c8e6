"""The connections of a source: how many there may be, which one is taken, and when a new one is made."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from cachegen.errors import StoreUnavailableError
from cachegen.sources.connection import Connection


class ConnectionPool:
    """Hands out connections, each to one fetch at a time.

    Parameters
    ----------
    name : str
        What errors call the source.
    make : callable
        Makes a connection.
    limit : int
        How many there may be; others wait for their turn.
    """

    def __init__(self, name: str, make: Callable[[], Connection], limit: int) -> None:
        self._name, self._make, self._turns = name, make, asyncio.Semaphore(limit)
        self._closed = False
        self._idle: list[Connection] = []
        self._busy: set[Connection] = set()
        self._freed = asyncio.Event()
        self._waiting = 0

    @asynccontextmanager
    async def turn(self, *, long: bool) -> AsyncIterator[Connection]:
        """Wait for a connection; an open one comes first, for long objects the one that carried most.

        Its window is the widest. Short objects, whose bytes one round trip brings, leave it to the long ones.

        Raises
        ------
        StoreUnavailableError
            The pool is closed.
        """
        async with self._turns:
            if long and not any(idle.is_open for idle in self._idle):
                await self._wait_for_handover()
            if self._closed:
                raise StoreUnavailableError(f"{self._name}: this source is closed")
            sign = 1 if long else -1
            connection = max(self._idle, key=lambda idle: (idle.is_open, sign * idle.carried_bytes), default=None)
            if connection is None:
                connection = self._make()
            else:
                self._idle.remove(connection)
            self._busy.add(connection)
            connection.is_open, connection.ends_s = False, None
            try:
                yield connection
            finally:
                self._busy.discard(connection)
                self._idle.append(connection)
                self._tell()

    async def close(self) -> None:
        """Close the connections; a fetch that is still in flight fails."""
        self._closed = True
        self._tell()
        for connection in [*self._idle, *self._busy]:
            await connection.close()
        self._idle.clear()

    async def _wait_for_handover(self) -> None:
        """Leave an object that is about to be whole the time that making a new connection would take.

        A new one takes that time anyway, and then several round trips until its window is as wide. Where there is but
        one, a second is needed: two take turns, so that the link does not idle between them.
        """
        now_s = asyncio.get_running_loop().time()
        promising = [busy for busy in self._busy if busy.ends_s is not None and busy.ends_s - now_s <= busy.took_s]
        if len(self._busy) < 2 or len(promising) <= self._waiting:
            return
        self._waiting += 1
        try:
            async with asyncio.timeout(max(busy.took_s for busy in promising)):
                await self._freed.wait()
        except TimeoutError:
            pass
        finally:
            self._waiting -= 1

    def _tell(self) -> None:
        """Wake those that wait: each looks once, so one that failed holds nobody up."""
        self._freed.set()
        self._freed = asyncio.Event()
