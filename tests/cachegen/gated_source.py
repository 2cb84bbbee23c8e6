"""A real store that answers when a test says, and a load from it; for tests."""

import asyncio
import threading
import time

from stored_context import COSTS

from cachegen import (
    ContextLoader,
    StageClock,
    StoreSource,
    StoreUnavailableError,
    make_controller,
    open_store,
)
from cachegen.manifest import chunk_name


class GatedSource:
    """A real store whose chunks arrive when, and in the order that, a test says; it may fail first."""

    def __init__(self, stored, failures=0):
        self._inner = StoreSource(open_store(str(stored.root)))
        chunks = enumerate(stored.manifest.chunks)
        self._places = {chunk_name(chunk.key, name): place for place, chunk in chunks for name in chunk.encodings}
        self.gates, self.asked, self.cancelled, self.failures = {}, [], [], failures
        self.flying = self.most_flying = 0
        self.received_bytes = 0

    def gate(self, index):
        return self.gates.setdefault(index, asyncio.Event())

    async def fetch(self, name, max_bytes, on_first_byte, *, on_bytes=None):
        index = self._places.get(name)
        if index is None:
            return await self._inner.fetch(name, max_bytes, on_first_byte, on_bytes=on_bytes)
        self.asked.append(index)
        if self.failures:
            self.failures -= 1
            raise StoreUnavailableError("out of order")
        self.flying += 1
        self.most_flying = max(self.most_flying, self.flying)
        try:
            await self.gate(index).wait()
            return await self._inner.fetch(name, max_bytes, on_first_byte, on_bytes=on_bytes)
        except asyncio.CancelledError:
            self.cancelled.append(index)
            raise
        finally:
            self.flying -= 1

    async def close(self):
        await self._inner.close()


async def until(condition):
    """Let the loop run until something holds."""
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.001)


def load_gated(stored, source, drive, controller=None, encodings=("raw",), slo_s=60.0, limits=None, known=None):
    """Load from ``source`` while ``drive(source, load)`` opens gates; return the context, if any, and the events."""
    events = []

    async def run():
        loader = ContextLoader(
            stored.model, stored.profile, source, COSTS, lambda event, **f: events.append((event, f)), limits
        )
        chosen, clock = controller or make_controller("fixed:raw", encodings), StageClock(time.monotonic())
        load = asyncio.ensure_future(
            loader.load(stored.manifest.context_key, chosen, encodings, slo_s, clock, known=known)
        )
        try:
            await drive(source, load)
            await asyncio.wait([load])
        finally:
            await source.close()
        assert asyncio.all_tasks() == {asyncio.current_task()}, "a load leaves no task behind"
        return None if load.cancelled() else load.result()

    loaded = asyncio.run(run())
    assert not any(thread.name.startswith(("decode", "recompute")) for thread in threading.enumerate())
    return loaded, events
