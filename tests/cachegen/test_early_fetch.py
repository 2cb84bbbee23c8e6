"""The last chunk's object asked for while the index is on its way: once, by the right name, and given up in time."""

import asyncio
import time

import pytest
import torch
from gated_source import COSTS, until
from stored_context import LADDER, store_context

from cachegen import (
    ContextLoader,
    HostLimits,
    LinkKnowledge,
    LoadHost,
    ObjectNotFoundError,
    StageClock,
    StoreSource,
    StoreUnavailableError,
    make_controller,
    open_store,
)
from cachegen.manifest import chunk_name

FAST = LinkKnowledge(throughput_bps=1e9, rtt_s=0.05, last_chunk="cachegen-2")


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    return store_context(tmp_path_factory.mktemp("store"))


class SlowIndex:
    """A real store whose index comes when a test says, and whose objects may not come at all."""

    def __init__(self, stored, error=None, fails_late=False):
        self._inner = StoreSource(open_store(str(stored.root)))
        self.index, self.asked, self.ended, self.error = asyncio.Event(), [], [], error
        self.chunk_s, self.padding = 0.0, b""
        self.received_bytes, self.fails_late = 0, fails_late

    async def fetch(self, name, max_bytes, on_first_byte, *, on_bytes=None):
        if not name.startswith("chunks/"):
            await self.index.wait()
            return await self._inner.fetch(name, max_bytes, on_first_byte, on_bytes=on_bytes)
        self.asked.append(name)
        try:
            if self.error is not None and len(self.asked) == 1:
                if self.fails_late:
                    await asyncio.sleep(0.1)
                raise self.error
            await asyncio.sleep(self.chunk_s)
            data = await self._inner.fetch(name, max_bytes, on_first_byte, on_bytes=on_bytes)
            if self.padding and len(self.asked) == 1:
                on_bytes(len(self.padding))
                data += self.padding
            return data
        finally:
            self.ended.append(name)

    async def close(self):
        await self._inner.close()


def load(stored, spec, *, known=None, encodings=LADDER, slow=True, error=None, fails_late=False, **settings):
    """Load with an index that comes at once, or only after what is asked for early; return all there is to see."""
    events = []

    async def run():
        source = SlowIndex(stored, error, fails_late)
        for name, value in settings.items():
            setattr(source, name, value)
        loader = ContextLoader(
            stored.model, stored.profile, source, COSTS, lambda event, **f: events.append((event, f))
        )
        clock = StageClock(time.monotonic())
        arguments = (stored.manifest.context_key, make_controller(spec, encodings), encodings, 60.0, clock)
        if not slow:
            source.index.set()
        loading = asyncio.ensure_future(loader.load(*arguments, known=known))
        try:
            if slow:
                await asyncio.sleep(0.05)
                await until(lambda: fails_late or len(source.ended) == len(source.asked))
            early = list(source.asked)
            source.index.set()
            loaded = await loading
        finally:
            await source.close()
        assert asyncio.all_tasks() == {asyncio.current_task()}, "a load leaves no task behind"
        return loaded, early, source.asked

    return *asyncio.run(run()), events


def name_of(stored, encoding, index=-1):
    return chunk_name(stored.manifest.chunks[index].key, encoding)


@pytest.mark.parametrize(
    ("spec", "known", "early"),
    [
        ("fixed:cachegen-0", None, "cachegen-0"),
        ("fixed:cachegen-0", FAST, "cachegen-0"),
        ("meet", None, "cachegen-2"),
        ("meet", FAST, "cachegen-2"),
    ],
)
def test_it_is_asked_for_once_and_before_the_index(stored, spec, known, early):
    loaded, before, asked, events = load(stored, spec, known=known)

    assert before == [name_of(stored, early)]
    # a chunk is asked for once, whatever was on its way
    assert len({name.rsplit("/", 1)[0] for name in asked}) == len(asked)
    assert loaded.chunk_sources[-1] == early
    assert loaded.wasted_bytes == 0
    [fetched] = [fields for event, fields in events if event == "fetch" and fields["chunk"] == 3]
    assert fetched["bytes"] == stored.manifest.chunks[-1].encodings[early]
    index_s = next(fields["elapsed_s"] for event, fields in events if event == "decision")
    assert fetched["started_s"] < fetched["first_byte_s"] < index_s


@pytest.fixture
def quick_index(monkeypatch):
    """However long an index takes, an early object would wait longer."""
    monkeypatch.setattr("cachegen.early_fetch._BEHIND_INDEX_S", 3600.0)


def test_the_cache_is_that_which_was_stored(stored):
    with_it, *_ = load(stored, "fixed:raw", encodings=("raw",))

    assert torch.equal(with_it.cache.chunk(0, 56), stored.cache.chunk(0, 56))


@pytest.mark.parametrize("spec", ["text", "paper"])
def test_what_begins_with_the_first_chunk_asks_for_nothing_early(stored, spec):
    _, early, *_ = load(stored, spec)

    assert early == []


@pytest.mark.usefixtures("quick_index")
def test_an_index_that_comes_at_once_leaves_nothing_to_ask_for_early(stored):
    _, early, asked, _ = load(stored, "fixed:cachegen-0", slow=False)

    assert early == []
    # in order, then
    assert asked == [name_of(stored, "cachegen-0", index) for index in range(4)]


def test_what_the_plan_does_not_want_is_given_up_and_counted(stored):
    # the finest was right for the link of before
    slow_link = LinkKnowledge(throughput_bps=2e3, rtt_s=0.05, last_chunk="raw")
    loaded, early, _, events = load(stored, "meet:0", known=slow_link, encodings=["raw", *LADDER])

    assert early == [name_of(stored, "raw")]
    assert loaded.chunk_sources[-1] != "raw"
    [given_up] = [fields for event, fields in events if event == "fetch_cancelled"]
    assert (given_up["chunk"], given_up["encoding"]) == (3, "raw")
    assert loaded.wasted_bytes == given_up["received_bytes"] == stored.manifest.chunks[-1].encodings["raw"]
    # what it chose itself is what the next load asks for
    assert loaded.link.last_chunk == loaded.chunk_sources[-1]


ERRORS = [ObjectNotFoundError("gone"), StoreUnavailableError("away")]


@pytest.mark.parametrize("error", ERRORS, ids=["gone", "away"])
def test_one_that_fails_after_the_index_is_decided_anew(stored, error):
    loaded, early, _, events = load(stored, "meet", encodings=("raw",), error=error, fails_late=True)

    assert len(early) == 1
    assert [fields["chunk"] for event, fields in events if event == "fetch_failed"] == [3]
    torch.testing.assert_close(loaded.cache.chunk(0, 56), stored.cache.chunk(0, 56))


@pytest.mark.parametrize("error", ERRORS, ids=["gone", "away"])
def test_one_that_failed_before_the_index_is_said_and_asked_for_again(stored, error):
    _, early, asked, events = load(stored, "fixed:raw", encodings=("raw",), error=error)

    assert len(early) == 1
    [failed] = [fields for event, fields in events if event in {"fetch_failed", "fetch_cancelled"}]
    assert (failed["chunk"], failed["encoding"], failed["error"]) == (3, "raw", str(error))
    assert asked[1:] == [name_of(stored, "raw", index) for index in range(4)]


def test_one_that_is_larger_than_the_index_says_is_a_failed_fetch(stored):
    loaded, early, _, events = load(stored, "fixed:raw", encodings=("raw",), padding=b"x" * 1000)

    assert len(early) == 1
    [failed] = [fields for event, fields in events if event == "fetch_failed"]
    size_bytes = stored.manifest.chunks[-1].encodings["raw"]
    assert f"more than the {size_bytes} bytes" in failed["error"]
    assert failed["received_bytes"] <= size_bytes
    torch.testing.assert_close(loaded.cache.chunk(0, 56), stored.cache.chunk(0, 56))


def test_one_that_does_not_end_is_not_read_to_its_end(stored, monkeypatch):
    monkeypatch.setattr("cachegen.loader._EARLY_TOKENS", 1)
    _, early, _, events = load(stored, "fixed:raw", encodings=("raw",))

    assert len(early) == 1
    [failed] = [fields for event, fields in events if event == "fetch_failed"]
    assert "holds more than" in failed["error"]


def test_an_index_that_was_quicker_leaves_nothing_that_is_asked_for_later(stored, monkeypatch):
    monkeypatch.setattr("cachegen.early_fetch._BEHIND_INDEX_S", 0.5)
    # four objects that take longer than that
    _, early, asked, _ = load(stored, "fixed:cachegen-0", slow=False, chunk_s=0.7)

    assert early == []
    assert sorted(asked) == sorted(name_of(stored, "cachegen-0", index) for index in range(4))


def test_a_cancelled_load_leaves_nothing_on_its_way(stored):
    async def run():
        source = SlowIndex(stored)
        loader = ContextLoader(stored.model, stored.profile, source, COSTS, lambda *_, **__: None)
        clock = StageClock(time.monotonic())
        loading = asyncio.ensure_future(
            loader.load(stored.manifest.context_key, make_controller("fixed:raw", ["raw"]), ["raw"], 60.0, clock)
        )
        await until(lambda: source.asked)
        loading.cancel()
        await asyncio.wait([loading])
        await source.close()
        return asyncio.all_tasks() - {asyncio.current_task()}

    assert asyncio.run(run()) == set()


def test_an_early_object_counts_against_the_hosts_limit_as_long_as_it_is_on_its_way(stored):
    async def run():
        source, host = SlowIndex(stored), LoadHost(limits=HostLimits(in_flight=1))
        source.chunk_s = 0.2
        key = stored.manifest.context_key

        async def counted(source):
            loader = ContextLoader(stored.model, stored.profile, source, COSTS, lambda *_, **__: None, host=host)
            controller = make_controller("fixed:raw", ["raw"])
            return await loader.load(key, controller, ["raw"], 60.0, StageClock(time.monotonic()))

        first = asyncio.ensure_future(counted(source))
        await until(lambda: source.asked)
        watched = SlowIndex(stored)
        watched.index.set()
        second = asyncio.ensure_future(counted(watched))
        await until(lambda: watched.asked)
        # the first one's object is over, though its index is not there yet
        ended, done = list(source.ended), first.done()
        source.index.set()
        results = await asyncio.gather(first, second)
        for each in (source, watched):
            await each.close()
        await host.close()
        return ended, done, results, host.shared.early_objects

    ended, done, results, left = asyncio.run(run())

    assert (len(ended), done, left) == (1, False, 0)
    for loaded in results:
        assert torch.equal(loaded.cache.chunk(0, 56), stored.cache.chunk(0, 56))


def test_a_host_that_serves_by_deadline_is_asked_for_its_turn_first(stored):
    async def run():
        source, host = SlowIndex(stored), LoadHost("deadline")
        loader = ContextLoader(stored.model, stored.profile, source, COSTS, lambda *_, **__: None, host=host)
        controller, clock = make_controller("fixed:raw", ["raw"]), StageClock(time.monotonic())
        loading = asyncio.ensure_future(loader.load(stored.manifest.context_key, controller, ["raw"], 60.0, clock))
        await asyncio.sleep(0.05)
        early = list(source.asked)
        source.index.set()
        await loading
        await host.close()
        await source.close()
        return early

    assert asyncio.run(run()) == []


def test_where_other_loads_are_about_nothing_is_asked_for_before_its_turn(stored):
    async def run():
        source, host = SlowIndex(stored), LoadHost()
        loader = ContextLoader(stored.model, stored.profile, source, COSTS, lambda *_, **__: None, host=host)
        key = stored.manifest.context_key
        loads = [
            asyncio.ensure_future(
                loader.load(key, make_controller("fixed:raw", ["raw"]), ["raw"], 60.0, StageClock(time.monotonic()))
            )
            for _ in range(3)
        ]
        await asyncio.sleep(0.05)
        early = list(source.asked)
        source.index.set()
        results = await asyncio.gather(*loads)
        await host.close()
        await source.close()
        return early, results

    early, results = asyncio.run(run())

    # the first came to an idle host
    assert early == [name_of(stored, "raw")]
    for loaded in results:
        assert torch.equal(loaded.cache.chunk(0, 56), stored.cache.chunk(0, 56))
