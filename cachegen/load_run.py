"""Carries out what a load's session says, on a real source and a real model, and tells it what came of that."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from cachegen.assembly import Assembly
from cachegen.early_fetch import EarlyFetch
from cachegen.errors import FormatError, MismatchError, ObjectNotFoundError, StoreError
from cachegen.kv_cache import KVCache
from cachegen.load_commands import CancelFetch, Command, Fetch, Prefill
from cachegen.load_host import LoadHost
from cachegen.load_session import LoadSession
from cachegen.manifest import Manifest, chunk_name
from cachegen.sources import Source
from cachegen.stage_clock import Stage, StageClock

# How often the session is asked when nothing happens: a stall is the absence of events.
_TICK_S = 0.02
# Arriving bytes raise the question no more often than this.
_LEAST_BETWEEN_S = 0.01

T = TypeVar("T")


class LoadRun:
    """One load under way.

    Parameters
    ----------
    session : LoadSession
        Says what to do.
    assembly : Assembly
        Decodes and recomputes.
    source : Source
        Where the objects are.
    manifest : Manifest
        Names the objects.
    clock : StageClock
        The request's; charged with waiting and fetching.
    host : LoadHost
        Whose other loads are told what happens.
    early : EarlyFetch, optional
        What the session was told of. Given up unless the session's first commands take it over.
    """

    def __init__(
        self,
        session: LoadSession,
        assembly: Assembly,
        source: Source,
        manifest: Manifest,
        clock: StageClock,
        host: LoadHost,
        early: EarlyFetch | None = None,
    ) -> None:
        self._session, self._assembly, self._source = session, assembly, source
        self._manifest, self._clock, self._host, self._early = manifest, clock, host, early
        self._news = asyncio.Event()
        self._asked_s = 0.0
        self._fetches: dict[int, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._arriving: set[int] = set()
        self._error: BaseException | None = None

    async def run(self) -> None:
        """Load until all chunks are in place; whatever ends it, nothing goes on behind the caller's back."""
        self._host.listen(self._news.set, self._clock.start_s + self._session.deadline_s)
        try:
            while not self._session.done:
                self._news.clear()
                self._asked_s = self._clock.elapsed_s()
                for command in self._session.commands(self._asked_s):
                    self._obey(command)
                await self._drop_early()
                if self._session.queued and not self._fetches:
                    self._clock.network(Stage.QUEUE)
                await self._wait_for_news()
                if self._error is not None:
                    raise self._error
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def follow(self, work: Callable[[KVCache], T]) -> T:
        """Compute what follows on the finished cache, when it is this load's turn."""
        self._clock.network(Stage.QUEUE)
        while not self._session.begin_after(self._clock.elapsed_s()):
            await self._wait_for_news()
            self._news.clear()
        return await self._assembly.follow(work)

    def close(self) -> None:
        """Give the place at the host up; to be called when no computation of this load runs any more."""
        self._session.leave()
        self._host.forget(self._news.set)

    async def _wait_for_news(self) -> None:
        try:
            async with asyncio.timeout(_TICK_S):
                await self._news.wait()
        except TimeoutError:
            pass

    def _obey(self, command: Command) -> None:
        match command:
            case Fetch(index):
                if not self._arriving:
                    self._clock.network(Stage.WAIT)
                self._fetches[index] = self._start(self._fetch(command, self._taken_over(command)))
            case CancelFetch(index):
                self._fetches[index].cancel()
                self._leave(index)
            case Prefill(index):
                self._start(self._recompute(index))

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._error = task.exception()
        self._news.set()
        self._host.tell()

    async def _drop_early(self) -> None:
        """What the first commands left alone is not wanted."""
        early, self._early = self._early, None
        if early is not None:
            await early.close()
            self._session.drop_early(early.received_bytes, self._clock.elapsed_s())

    def _taken_over(self, command: Fetch) -> EarlyFetch | None:
        if not command.early:
            return None
        early, self._early = self._early, None
        return early

    async def _fetch(self, command: Fetch, early: EarlyFetch | None) -> None:
        index, encoding = command.index, command.encoding_name
        try:
            data, ended_s = await (self._ask(command) if early is None else self._go_on(command, early))
        except StoreError as error:
            self._leave(index)
            gone = isinstance(error, ObjectNotFoundError)
            self._session.fetch_failed(index, str(error), self._clock.elapsed_s(), gone=gone)
            return
        self._leave(index)
        self._session.fetched(index, ended_s)
        self._news.set()
        await self._decode(index, encoding, data)

    async def _ask(self, command: Fetch) -> tuple[bytes, float]:
        index, elapsed_s = command.index, self._clock.elapsed_s
        data = await self._source.fetch(
            chunk_name(self._manifest.chunks[index].key, command.encoding_name),
            command.size_bytes,
            on_first_byte=lambda: self._begin(index, elapsed_s()),
            on_bytes=lambda count: self._receive(index, count, elapsed_s()),
        )
        return data, elapsed_s()

    async def _go_on(self, command: Fetch, early: EarlyFetch) -> tuple[bytes, float]:
        index = command.index
        return await early.take_over(command.size_bytes, partial(self._begin, index), partial(self._receive, index))

    async def _decode(self, index: int, encoding: str, data: bytes) -> None:
        try:
            started_s, ended_s = await self._assembly.decode(index, encoding, data)
        except (FormatError, MismatchError) as error:
            self._session.decode_failed(index, str(error))
        else:
            self._session.decoded(index, started_s, ended_s)

    async def _recompute(self, index: int) -> None:
        started_s, ended_s = await self._assembly.recompute(index)
        self._session.recomputed(index, started_s, ended_s)

    def _begin(self, index: int, now_s: float) -> None:
        self._arriving.add(index)
        self._clock.network(Stage.FETCH)
        self._session.first_byte(index, now_s)

    def _receive(self, index: int, count: int, now_s: float) -> None:
        self._session.received(index, count, now_s)
        if now_s - self._asked_s >= _LEAST_BETWEEN_S:
            self._news.set()
            if self._host.shared.link_runs_dry(self._clock.start_s + now_s):
                self._host.tell()

    def _leave(self, index: int) -> None:
        self._fetches.pop(index, None)
        self._arriving.discard(index)
        if not self._arriving:
            self._clock.network(Stage.WAIT)
