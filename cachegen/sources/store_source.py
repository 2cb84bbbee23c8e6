"""Objects of a store that this process reads itself."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from cachegen.errors import InvalidInputError, StoreUnavailableError
from cachegen.stores import Store, note_read


class StoreSource:
    """Objects of a store in this process or on this machine, or of a service that its store speaks to.

    A store's calls block: each runs in a thread. A fetch that is cancelled ends at once. Its call is
    not made where it has not begun; else it goes on to its own end, and what it brings is counted and dropped.

    Parameters
    ----------
    store : Store
        Must bear calls from several threads.
    threads : int
        How many fetches go on at once; others wait for their turn.

    Raises
    ------
    InvalidInputError
        No threads.
    """

    def __init__(self, store: Store, *, threads: int = 6) -> None:
        if threads < 1:
            raise InvalidInputError(f"threads is {threads}, must be positive")
        self.received_bytes = 0
        self._store, self._counting = store, threading.Lock()
        # its own threads, so that a store that hangs does not stop the rest of the program
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="store-source")

    async def fetch(
        self,
        name: str,
        max_bytes: int,
        on_first_byte: Callable[[], None],
        *,
        on_bytes: Callable[[int], None] | None = None,
    ) -> bytes:
        """See :meth:`Source.fetch`; the answer begins and ends in one piece."""
        on_first_byte()
        loop = asyncio.get_running_loop()
        data = await loop.run_in_executor(self._threads, self._read, name, max_bytes + 1)
        if len(data) > max_bytes:
            raise StoreUnavailableError(f"{name}: holds more than the {max_bytes} bytes that were expected")
        if on_bytes is not None:
            on_bytes(len(data))
        self._threads.submit(note_read, self._store, name)  # nobody waits for it
        return data

    def _read(self, name: str, end: int) -> bytes:
        data = self._store.get(name, 0, end)
        # counted here, for a fetch that was cancelled meanwhile does not see them
        with self._counting:
            self.received_bytes += len(data)
        return data

    async def close(self) -> None:
        """Give up the threads; calls that go on end in their own time."""
        self._threads.shutdown(wait=False)
