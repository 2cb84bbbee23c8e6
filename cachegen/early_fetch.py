"""Asks for the last chunk's object while the index is still on its way, which saves a round trip."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack

from cachegen.errors import StoreError, StoreUnavailableError
from cachegen.last_chunk import EarlyObject
from cachegen.manifest import chunk_name
from cachegen.sources import Source
from cachegen.stage_clock import StageClock

# The index goes first: its few bytes must not stand behind an object in the link's queue. Where it is here by then,
# there is no round trip to save.
_BEHIND_INDEX_S = 0.005


class EarlyFetch:
    """A fetch whose listener comes later, and is then told what has happened so far.

    Parameters
    ----------
    source : Source
        Where the object is.
    context_key : bytes
        Of the context, which is its last chunk's.
    encoding_name : str
        To ask for.
    max_bytes : int
        That the object may have; its size is not known yet.
    clock : StageClock
        The request's. Charged with nothing: it is the index that is waited for.
    counted : context manager
        Entered when the object is asked for; left when it is there, has failed or is handed over.

    Attributes
    ----------
    encoding_name : str
        As it was given.
    """

    def __init__(
        self,
        source: Source,
        context_key: bytes,
        encoding_name: str,
        max_bytes: int,
        clock: StageClock,
        counted: AbstractContextManager[None],
    ) -> None:
        self._source, self._clock, self.encoding_name = source, clock, encoding_name
        self._counted, self._counting = counted, ExitStack()
        self._asked_s: float | None = None
        self._first_byte_s: float | None = None
        self._ended_s = 0.0
        self._pieces: list[tuple[int, float]] = []
        self._on_first_byte: Callable[[float], None] | None = None
        self._on_bytes: Callable[[int, float], None] | None = None
        self._task = asyncio.ensure_future(self._fetch(chunk_name(context_key, encoding_name), max_bytes))

    @property
    def received_bytes(self) -> int:
        """Bytes that have arrived so far."""
        return sum(count for count, _ in self._pieces)

    @property
    def failure(self) -> StoreError | None:
        """What the fetch failed with, if it has."""
        error = self._task.exception() if self._task.done() and not self._task.cancelled() else None
        return error if isinstance(error, StoreError) else None

    def hand_over(self) -> EarlyObject | None:
        """Return what is on its way or here, from now on the caller's; ``None``: nothing is, or it failed."""
        self._counting.close()
        if self._asked_s is None or self.failure is not None:
            return None
        return EarlyObject(self.encoding_name, self._asked_s, self._first_byte_s is not None)

    async def take_over(
        self, size_bytes: int, on_first_byte: Callable[[float], None], on_bytes: Callable[[int, float], None]
    ) -> tuple[bytes, float]:
        """Return the object and when it was whole; cancelling this cancels the fetch.

        Parameters
        ----------
        size_bytes : int
            The object's, as the index says.
        on_first_byte, on_bytes
            As of :meth:`Source.fetch`, each with the time on the clock; called at once for what has happened already.

        Raises
        ------
        ObjectNotFoundError, StoreUnavailableError
            As of :meth:`Source.fetch`.
        """
        room_bytes = size_bytes

        def heard(count: int, at_s: float) -> None:
            nonlocal room_bytes
            room_bytes -= count
            if room_bytes >= 0:
                on_bytes(count, at_s)
            else:
                self._task.cancel()

        if self._first_byte_s is not None:
            on_first_byte(self._first_byte_s)
        for count, at_s in self._pieces:
            heard(count, at_s)
        self._on_first_byte, self._on_bytes = on_first_byte, heard
        try:
            await asyncio.wait([self._task])
        except asyncio.CancelledError:
            await self.close()
            raise
        if room_bytes < 0:
            raise StoreUnavailableError(f"{self.encoding_name}: sent more than the {size_bytes} bytes expected")
        return self._task.result(), self._ended_s

    async def close(self) -> None:
        """Give the object up, if it is not here yet."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _fetch(self, name: str, max_bytes: int) -> bytes:
        await asyncio.sleep(_BEHIND_INDEX_S)
        self._asked_s = self._clock.elapsed_s()
        with self._counting:
            self._counting.enter_context(self._counted)
            data = await self._source.fetch(name, max_bytes, self._begin, on_bytes=self._receive)
        self._ended_s = self._clock.elapsed_s()
        return data

    def _begin(self) -> None:
        self._first_byte_s = self._clock.elapsed_s()
        if self._on_first_byte is not None:
            self._on_first_byte(self._first_byte_s)

    def _receive(self, count: int) -> None:
        now_s = self._clock.elapsed_s()
        self._pieces.append((count, now_s))
        if self._on_bytes is not None:
            self._on_bytes(count, now_s)
