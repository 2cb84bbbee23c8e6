"""Objects of real stores behind a slow link reach the loader as they arrive, not at their end."""

import asyncio
import time
from contextlib import ExitStack

import pytest
from slow_link import SlowLink
from store_servers import CREDENTIALS, running_redis, running_s3
from stored_context import COSTS, store_context

from cachegen import ContextLoader, LoadLimits, StageClock, StoreSource, make_controller
from cachegen.stores import FileStore, open_store
from cachegen.stores.memory_store import MemoryStore

NUM_BYTES, BYTES_PER_S = 1_000_000, 2_000_000
DATA = bytes(range(250)) * (NUM_BYTES // 250)


def port_of(url):
    return int(url.rpartition(":")[2].partition("/")[0])


@pytest.fixture(params=["redis", "s3"])
def slow_store(request, tmp_path, monkeypatch):
    """A store on a real server behind a slow link."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    with ExitStack() as stack:
        if request.param == "redis":
            server = stack.enter_context(running_redis(tmp_path))
            store = open_store(server.url)
            link = stack.enter_context(SlowLink(server.port, BYTES_PER_S))
            slow = open_store(f"redis://127.0.0.1:{port_of(link.url)}/0")
        else:
            endpoint = stack.enter_context(running_s3("bucket-1"))
            store = open_store(f"s3://bucket-1?endpoint={endpoint}")
            link = stack.enter_context(SlowLink(port_of(endpoint), BYTES_PER_S))
            slow = open_store(f"s3://bucket-1?endpoint={link.url}")
        store.put("a", DATA)
        store.put("empty", b"")
        yield slow


@pytest.fixture(params=["file", "memory"])
def near_store(request, tmp_path):
    store = FileStore(tmp_path) if request.param == "file" else MemoryStore()
    store.put("a", DATA)
    store.put("empty", b"")
    return store


def heard_of(store, name):
    """The object, and what its fetch said while it went on, in order."""
    heard = []

    async def run():
        source = StoreSource(store)
        data = await source.fetch(name, NUM_BYTES, lambda: heard.append("begun"), on_bytes=heard.append)
        heard.append("ended")
        await source.close()
        assert source.received_bytes == len(data)
        return data

    return asyncio.run(run()), heard


def check_heard(store):
    """The first byte comes first, then each piece in order, then the end; returns the pieces' sizes."""
    data, (begun, *pieces, ended) = heard_of(store, "a")
    assert (data, begun, ended) == (DATA, "begun", "ended")
    assert sum(pieces) == NUM_BYTES
    assert heard_of(store, "empty") == (b"", ["begun", "ended"])
    return pieces


def test_a_slow_object_is_heard_of_piece_by_piece(slow_store):
    assert len(check_heard(slow_store)) >= 3


def test_an_object_of_a_near_store_is_heard_of_as_well(near_store):
    pieces = check_heard(near_store)
    assert len(pieces) >= (3 if isinstance(near_store, FileStore) else 1)


def test_a_cancelled_fetch_has_counted_what_came_and_reads_no_further(slow_store):
    heard = []

    async def run():
        source = StoreSource(slow_store)
        fetch = asyncio.ensure_future(source.fetch("a", NUM_BYTES, lambda: None, on_bytes=heard.append))
        while not heard:
            await asyncio.sleep(0.001)
        fetch.cancel()
        with pytest.raises(asyncio.CancelledError):
            await fetch
        counted = list(heard)
        source._threads.shutdown(wait=True)
        await asyncio.sleep(0)
        assert heard == counted
        return source.received_bytes

    assert 0 < asyncio.run(run()) < NUM_BYTES


class DrippingStore(FileStore):
    """A store whose chunks flow at 10 kB/s, after a wait for the first byte."""

    def read(self, name, end):
        if not name.startswith("chunks/"):
            yield from super().read(name, end)
            return
        data = self.get(name, 0, end)
        for first in range(0, len(data), 500):
            time.sleep(0.05)
            yield data[first : first + 500]


def test_an_object_that_flows_for_longer_than_the_patience_is_not_given_up(tmp_path):
    stored = store_context(tmp_path / "store")
    patience_s, events = 0.4, []
    object_s = stored.manifest.chunks[0].encodings["raw"] / 10_000
    assert object_s > 1.5 * patience_s

    async def run():
        source = StoreSource(DrippingStore(stored.root))
        loader = ContextLoader(
            stored.model,
            stored.profile,
            source,
            COSTS,
            lambda event, **values: events.append((event, values)),
            LoadLimits(patience_s=patience_s),
        )
        clock = StageClock(time.monotonic())
        controller = make_controller("fixed:raw", ["raw"])
        try:
            return await loader.load(stored.manifest.context_key, controller, ["raw"], 20.0, clock)
        finally:
            await source.close()

    loaded = asyncio.run(run())

    assert set(loaded.chunk_sources) == {"raw"}
    fetched = [values for event, values in events if event == "fetch"]
    assert len(fetched) == len(stored.manifest.chunks)
    assert all(each["started_s"] < each["first_byte_s"] < each["ended_s"] for each in fetched), fetched
