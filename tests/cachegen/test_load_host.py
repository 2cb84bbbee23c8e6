"""Several real loads at once on one host: right caches, bounded memory, nothing left of those that are cancelled."""

import asyncio
import threading
import time

import pytest
import torch
from storage_server import running_server
from stored_context import COSTS, LADDER, store_context

from cachegen import (
    AdmissionError,
    ContextLoader,
    HostLimits,
    HttpSource,
    LinkKnowledge,
    LoadHost,
    Stage,
    StageClock,
    make_controller,
)
from cachegen.pipeline import decode_chunk

LOADS = 6


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    return store_context(tmp_path_factory.mktemp("store"))


class WatchedSource:
    """A source that notes how many objects are on their way at once, chunks alone."""

    def __init__(self, source):
        self._source, self.flying, self.most = source, 0, 0

    async def fetch(self, name, *arguments, **keywords):
        chunk = name.startswith("chunks/")
        self.flying += chunk
        self.most = max(self.most, self.flying)
        try:
            return await self._source.fetch(name, *arguments, **keywords)
        finally:
            self.flying -= chunk


def no_log(*_, **__):
    pass


async def load_all(stored, url, specs, sharing, *, slo_s=60.0, limits=None, admission=False, known=None):
    """One load for each spec, all at once; results or errors, and the most objects that were on their way."""
    source = HttpSource(url, connections=40)
    watched, host = WatchedSource(source), LoadHost(sharing, limits=limits, admission=admission)
    clocks = [StageClock(time.monotonic()) for _ in specs]

    async def load(spec, clock):
        encodings = LADDER if spec in ("paper", "meet") else ["raw"]
        loader = ContextLoader(stored.model, stored.profile, watched, COSTS, no_log, host=host)
        controller = make_controller(spec, encodings)
        return await loader.load(
            stored.manifest.context_key,
            controller,
            encodings,
            slo_s,
            clock,
            0,
            known,
            follow=lambda cache: len(cache.token_ids),
        )

    try:
        loads = [load(spec, clock) for spec, clock in zip(specs, clocks, strict=True)]
        results = await asyncio.gather(*loads, return_exceptions=True)
        left = asyncio.all_tasks() - {asyncio.current_task()}
    finally:
        await source.close()
        await host.close()
    assert left == set()
    return results, clocks, watched.most


@pytest.mark.parametrize("sharing", ["equal", "deadline"])
def test_six_loads_at_once_have_the_very_caches_of_each_alone(stored, sharing):
    specs = ["fixed:raw", "text", "fixed:raw", "text", "fixed:raw", "fixed:raw"]
    with running_server(stored.root) as server:
        results, clocks, _ = asyncio.run(load_all(stored, server.url, specs, sharing))

    for spec, loaded, clock in zip(specs, results, clocks, strict=True):
        found = loaded.cache.chunk(0, 56)
        if spec == "text":
            torch.testing.assert_close(found, stored.cache.chunk(0, 56))
        else:
            assert torch.equal(found, stored.cache.chunk(0, 56))
        assert loaded.cache.token_ids == stored.cache.token_ids
        assert loaded.followed == 56
        assert sum(clock.stop().values()) == pytest.approx(clock.elapsed_s(), abs=0.01)


@pytest.mark.parametrize("sharing", ["equal", "deadline"])
@pytest.mark.parametrize("spec", ["paper", "meet"])
def test_controllers_that_adapt_load_side_by_side(stored, sharing, spec):
    with running_server(stored.root) as server:
        results, _, _ = asyncio.run(load_all(stored, server.url, [spec] * LOADS, sharing, slo_s=2.0))
    for loaded in results:
        assert set(loaded.chunk_sources) <= {*LADDER, "recompute"}
        assert loaded.cache.token_ids == stored.cache.token_ids


def test_no_more_objects_are_on_their_way_than_the_hosts_limit(stored, monkeypatch):
    waiting, most_waiting, counting = [0], [0], threading.Lock()

    def slow_decode(*arguments, **options):
        time.sleep(0.02)
        with counting:
            waiting[0] -= 1
        return decode_chunk(*arguments, **options)

    def submit(host, work):
        with counting:
            waiting[0] += 1
            most_waiting[0] = max(most_waiting[0], waiting[0])
        return host._decoder.submit(work)

    monkeypatch.setattr("cachegen.assembly.decode_chunk", slow_decode)
    monkeypatch.setattr(LoadHost, "submit_decode", submit)
    with running_server(stored.root) as server:
        limits = HostLimits(in_flight=3, undecoded=2)
        results, _, most = asyncio.run(load_all(stored, server.url, ["fixed:raw"] * LOADS, "equal", limits=limits))

    assert all(loaded.chunk_sources == ("raw",) * 4 for loaded in results)
    assert most <= 3
    # those on their way when the limit is reached still arrive
    assert 1 <= most_waiting[0] <= 2 + 3


def test_cancelled_loads_leave_nothing_and_the_others_end(stored, monkeypatch):
    begun, may_end = threading.Event(), threading.Event()
    prefill = stored.model.prefill

    def slow_prefill(*arguments):
        begun.set()
        may_end.wait(timeout=20)
        return prefill(*arguments)

    async def run(url):
        source, host = HttpSource(url, connections=40), LoadHost("deadline")

        async def load(spec):
            loader = ContextLoader(stored.model, stored.profile, source, COSTS, no_log, host=host)
            clock = StageClock(time.monotonic())
            return await loader.load(stored.manifest.context_key, make_controller(spec, ["raw"]), ["raw"], 60.0, clock)

        cancelled = [asyncio.ensure_future(load("text")) for _ in range(LOADS - 1)]
        await asyncio.to_thread(begun.wait)
        others = asyncio.ensure_future(load("text"))
        for task in cancelled:
            task.cancel()
        asyncio.get_running_loop().call_later(0.05, may_end.set)
        await asyncio.wait(cancelled)
        assert all(task.cancelled() for task in cancelled)
        loaded = await others
        flying, shared = host.shared.flying_bytes(), host.shared.is_shared
        left = asyncio.all_tasks() - {asyncio.current_task()}
        await source.close()
        await host.close()
        return loaded, flying, shared, left

    monkeypatch.setattr(stored.model, "prefill", slow_prefill)
    with running_server(stored.root) as server:
        loaded, flying, shared, left = asyncio.run(run(server.url))

    torch.testing.assert_close(loaded.cache.chunk(0, 56), stored.cache.chunk(0, 56))
    assert (flying, shared, left) == (0, False, set())
    assert not any(thread.name.startswith(("decode", "recompute")) for thread in threading.enumerate())


def test_a_host_with_admission_refuses_what_comes_too_late_and_serves_the_rest(stored):
    # a second of recomputation a chunk, and a link that is known for next to nothing
    known = LinkKnowledge(800.0, 0.001)
    with running_server(stored.root) as server:
        work = load_all(stored, server.url, ["text"] * 2, "deadline", slo_s=6.0, admission=True, known=known)
        results, _, most = asyncio.run(work)

    [refused] = [result for result in results if isinstance(result, AdmissionError)]
    [served] = [result for result in results if not isinstance(result, AdmissionError)]
    assert "its deadline is at 6.00 s" in str(refused)
    assert served.chunk_sources == ("recompute",) * 4
    assert most == 0


def test_waiting_for_other_loads_is_queueing_time(stored, monkeypatch):
    prefill = stored.model.prefill

    def slow_prefill(*arguments):
        time.sleep(0.05)
        return prefill(*arguments)

    monkeypatch.setattr(stored.model, "prefill", slow_prefill)
    with running_server(stored.root) as server:
        _, clocks, _ = asyncio.run(load_all(stored, server.url, ["text"] * 3, "deadline"))
    queued_s = sorted(clock.stop()[Stage.QUEUE] for clock in clocks)
    # two loads of four prefills each go before the last one
    assert queued_s[-1] >= 8 * 0.05
