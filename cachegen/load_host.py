"""What real loads at one inference host share: the threads that decode and compute, and the order of turns."""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from cachegen.sharing import HostLimits, SharedHost, make_sharing

T = TypeVar("T")


class LoadHost:
    """One decode thread and one compute thread for all loads, side by side, and a common notion of what goes first.

    Loads on one host run in one event loop, on one source. Its connections should be no fewer than the objects in
    flight that ``limits`` allow and two for each load, whose index is asked for too: an ``HttpSource`` has eight where
    no number is given, and the rest would wait in it, unseen by the order of turns and taken for a slow link.

    Parameters
    ----------
    sharing : str
        How link and compute lane are divided, a name of ``SHARING``.
    admission : bool
        Whether a load whose deadline could not be held, or would cost another its own, is refused at its arrival.
    limits : HostLimits, optional
        Over all loads; default: those of the class.

    Raises
    ------
    UnknownNameError
        No such sharing.
    """

    def __init__(
        self,
        sharing: str = "equal",
        *,
        admission: bool = False,
        limits: HostLimits | None = None,
    ) -> None:
        self.shared = SharedHost(make_sharing(sharing), limits or HostLimits())
        self.admission = admission
        self._decoder = ThreadPoolExecutor(max_workers=1, thread_name_prefix="decode")
        self._computer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="recompute")
        self._listeners: dict[Callable[[], None], float] = {}
        self._loads = 0

    @contextmanager
    def loading(self) -> Iterator[bool]:
        """Count a load in for the with-block, from its arrival on; says whether it is alone."""
        self._loads += 1
        try:
            yield self._loads == 1
        finally:
            self._loads -= 1

    @contextmanager
    def early_object(self) -> Iterator[None]:
        """Count an object in that is on its way for a load without a place at the host yet."""
        self.shared.early_objects += 1
        try:
            yield
        finally:
            self.shared.early_objects -= 1
            self.tell()

    def submit_decode(self, work: Callable[[], T]) -> "Future[T]":
        """Have the decode thread do something."""
        return self._decoder.submit(work)

    def submit_compute(self, work: Callable[[], T]) -> "Future[T]":
        """Have the compute thread do something."""
        return self._computer.submit(work)

    def listen(self, on_news: Callable[[], None], deadline_s: float) -> None:
        """Have a load told when another's progress may concern it; ``deadline_s`` is its own, on the clock."""
        self._listeners[on_news] = deadline_s

    def forget(self, on_news: Callable[[], None]) -> None:
        """Tell it no more, and tell the others that it is gone."""
        self._listeners.pop(on_news, None)
        self.tell()

    def tell(self) -> None:
        """Something has happened: every load is to look whether it is its turn, the most urgent first."""
        for on_news in sorted(self._listeners, key=self._listeners.__getitem__):
            on_news()

    async def close(self) -> None:
        """End the threads, once what they are at is done."""
        for thread in (self._decoder, self._computer):
            await asyncio.to_thread(thread.shutdown, cancel_futures=True)
