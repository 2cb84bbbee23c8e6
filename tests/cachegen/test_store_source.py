"""Several reads of a store at once, each in a thread of its own."""

import asyncio
import threading

import pytest

from cachegen import InvalidInputError, StoreSource, StoreUnavailableError
from cachegen.stores import FileStore


class GatedStore(FileStore):
    """A store on a disk that answers when the test says so."""

    def __init__(self, root):
        super().__init__(root)
        self.begun, self.gate = threading.Semaphore(0), threading.Event()
        self.calls = []

    def read(self, name, end):
        self.calls.append(name)
        self.begun.release()
        self.gate.wait(timeout=60)
        yield from super().read(name, end)


@pytest.fixture
def store(tmp_path):
    store = GatedStore(tmp_path)
    for number in range(4):
        store.put(f"chunks/{number}", bytes([number]) * 1000)
    yield store
    store.gate.set()


def no_matter():
    pass


def fetch_all(source, count=4, **options):
    return [asyncio.ensure_future(source.fetch(f"chunks/{n}", 1000, no_matter, **options)) for n in range(count)]


async def wait_begun(store, count):
    for _ in range(count):
        assert await asyncio.to_thread(store.begun.acquire, timeout=30)


def test_several_reads_go_on_at_once(store):
    pieces = []

    async def run():
        source = StoreSource(store)
        fetches = fetch_all(source, on_bytes=pieces.append)
        await wait_begun(store, 4)
        store.gate.set()
        objects = await asyncio.gather(*fetches)
        await source.close()
        return objects, source.received_bytes

    assert asyncio.run(run()) == ([bytes([number]) * 1000 for number in range(4)], 4000)
    assert pieces == [1000] * 4


def test_a_cancelled_read_ends_at_once_and_the_others_go_on(store):
    async def run():
        source = StoreSource(store)
        fetches = fetch_all(source)
        await wait_begun(store, 4)
        fetches[1].cancel()
        with pytest.raises(asyncio.CancelledError):
            await fetches[1]
        assert not store.gate.is_set()
        store.gate.set()
        objects = await asyncio.gather(*fetches, return_exceptions=True)
        await source.close()
        return [data for data in objects if isinstance(data, bytes)], source

    objects, source = asyncio.run(run())
    source._threads.shutdown(wait=True)
    assert objects == [bytes([number]) * 1000 for number in (0, 2, 3)]
    # the read that nobody waited for did take place
    assert source.received_bytes == 4000


def test_a_cancelled_read_that_had_not_begun_never_does(store):
    async def run():
        source = StoreSource(store, threads=1)
        fetches = fetch_all(source)
        await wait_begun(store, 1)
        for fetch in fetches[1:3]:
            fetch.cancel()
        # the loop hands a cancellation on in its next turn
        await asyncio.wait(fetches[1:3])
        store.gate.set()
        await asyncio.gather(*fetches, return_exceptions=True)
        await source.close()

    asyncio.run(run())
    assert store.calls == ["chunks/0", "chunks/3"]


def test_what_the_store_says_comes_through(store):
    store.gate.set()

    async def run(name, max_bytes):
        source = StoreSource(store)
        try:
            await source.fetch(name, max_bytes, no_matter)
        finally:
            await source.close()

    with pytest.raises(InvalidInputError, match="object name"):
        asyncio.run(run("../x", 10))
    with pytest.raises(StoreUnavailableError, match="more than the 10 bytes"):
        asyncio.run(run("chunks/1", 10))


def test_no_threads_are_refused(store):
    with pytest.raises(InvalidInputError, match="threads is 0"):
        StoreSource(store, threads=0)
