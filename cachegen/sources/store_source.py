"""Objects of a store that this process reads itself."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

from cachegen.errors import InvalidInputError, StoreUnavailableError
from cachegen.stores import Store, UseRecorder


class StoreSource:
    """Objects of a store in this process or on this machine, or of a service that its store speaks to.

    A store's calls block: each fetch reads in a thread, piece by piece. One that is cancelled ends at once. Its thread
    reads nothing where it has not begun; else it stops behind the piece that it waits for, which is counted and
    dropped. The uses of contexts are recorded in the store, where it can be written to.

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
        self._uses = UseRecorder(store)
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
        """See :meth:`Source.fetch`."""
        loop = asyncio.get_running_loop()
        news = _News(loop, on_first_byte, on_bytes)
        try:
            data = await loop.run_in_executor(self._threads, self._read, name, max_bytes, news)
        finally:
            news.unwanted = True
        self._uses.note(name)
        return data

    def _read(self, name: str, max_bytes: int, news: "_News") -> bytes:
        pieces: list[bytes] = []
        num_bytes = 0
        with closing(self._store.read(name, max_bytes + 1)) as arriving:
            for piece in arriving:
                num_bytes += len(piece)
                # counted here, for a fetch that was cancelled meanwhile does not see it
                with self._counting:
                    self.received_bytes += len(piece)
                if news.unwanted:
                    return b""
                if num_bytes > max_bytes:
                    raise StoreUnavailableError(f"{name}: holds more than the {max_bytes} bytes that were expected")
                pieces.append(piece)
                news.tell(len(piece))
        if not pieces:
            news.tell(0)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def close(self) -> None:
        """Give up the threads; calls that go on end in their own time."""
        self._threads.shutdown(wait=False)
        self._uses.close()


class _News:
    """What a thread tells the fetch that it reads for, in the fetch's loop and in order."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        on_first_byte: Callable[[], None],
        on_bytes: Callable[[int], None] | None,
    ) -> None:
        self._loop, self._on_first_byte, self._on_bytes = loop, on_first_byte, on_bytes
        self._begun = False
        self.unwanted = False
        """Whether the fetch is over, and nobody listens."""

    def tell(self, num_bytes: int) -> None:
        """Say that a piece is there, or that the object has none: then it has 0 bytes."""
        self._loop.call_soon_threadsafe(self._hear, num_bytes)

    def _hear(self, num_bytes: int) -> None:
        if self.unwanted:
            return
        if not self._begun:
            self._begun = True
            self._on_first_byte()
        if num_bytes and self._on_bytes is not None:
            self._on_bytes(num_bytes)
