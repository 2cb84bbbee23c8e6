"""Loading over a real server: right values whatever is missing, damaged or slow."""

import asyncio
import threading
import time

import pytest
import torch
from gated_source import until
from storage_server import running_server
from stored_context import CHUNK_TOKENS, COSTS, LADDER, store_context
from tiny_models import random_tokens, tiny_llama

from cachegen import (
    ESTIMATORS,
    ContextLoader,
    HttpSource,
    LoadLimits,
    MismatchError,
    ObjectNotFoundError,
    Stage,
    StageClock,
    StoreSource,
    StoreUnavailableError,
    UnknownNameError,
    make_controller,
    open_store,
)
from cachegen.controllers import InOrderController, Recompute, Stream
from cachegen.manifest import chunk_name, manifest_name, tokens_name


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    return store_context(tmp_path_factory.mktemp("store"))


@pytest.fixture
def fresh(tmp_path):
    return store_context(tmp_path)


def load(stored, url, spec, encodings, slo_s=60.0, model=None, profile=None, estimator=None):
    """Load over HTTP; return the loaded context, the events and the clock."""
    events = []

    async def run():
        source, clock = HttpSource(url), StageClock(time.monotonic())
        loader = ContextLoader(
            model or stored.model,
            profile or stored.profile,
            source,
            COSTS,
            lambda event, **fields: events.append((event, fields)),
        )
        try:
            controller = make_controller(spec, encodings)
            key = stored.manifest.context_key
            loaded = await loader.load(key, controller, encodings, slo_s, clock, estimator=estimator)
        finally:
            await source.close()
        return loaded, clock, source

    loaded, clock, source = asyncio.run(run())
    return loaded, events, clock, source


def test_raw_chunks_over_http_give_the_very_cache(stored):
    with running_server(stored.root) as server:
        loaded, events, _, source = load(stored, server.url, "fixed:raw", ["raw"])

    assert torch.equal(loaded.cache.chunk(0, 56), stored.cache.chunk(0, 56))
    assert loaded.cache.token_ids == stored.cache.token_ids
    assert loaded.chunk_sources == ("raw",) * 4
    chunk_bytes = sum(fields["bytes"] for event, fields in events if event == "fetch")
    assert chunk_bytes == sum(chunk.encodings["raw"] for chunk in stored.manifest.chunks)
    assert source.received_bytes > chunk_bytes


def test_text_fetches_no_chunk_and_recomputes_the_same_cache(stored):
    with running_server(stored.root) as server:
        loaded, events, clock, source = load(stored, server.url, "text", [])

    torch.testing.assert_close(loaded.cache.chunk(0, 56), stored.cache.chunk(0, 56))
    assert loaded.chunk_sources == ("recompute",) * 4
    assert not any(event == "fetch" for event, _ in events)
    assert source.received_bytes < stored.manifest.chunks[0].encodings["cachegen-4"] + 4096
    assert clock.stop()[Stage.RECOMPUTE] > 0


def test_coded_chunks_follow_recomputed_ones(stored):
    class Alternating(InOrderController):
        """Recomputes the even chunks and streams the odd ones."""

        encodings = ("raw",)

        def choose(self, state, finish_s):
            return (Recompute() if state.remaining[0].index % 2 == 0 else Stream("raw")), "by turns"

    async def run(url):
        source = HttpSource(url)
        loader = ContextLoader(stored.model, stored.profile, source, COSTS, lambda *_, **__: None)
        clock = StageClock(time.monotonic())
        loaded = await loader.load(stored.manifest.context_key, Alternating(), ["raw"], 60.0, clock)
        await source.close()
        return loaded

    with running_server(stored.root) as server:
        loaded = asyncio.run(run(server.url))

    assert loaded.chunk_sources == ("recompute", "raw", "recompute", "raw")
    torch.testing.assert_close(loaded.cache.chunk(0, 56), stored.cache.chunk(0, 56))


def test_the_papers_controller_streams_when_recomputing_takes_too_long(stored):
    with running_server(stored.root) as server:
        loaded, events, clock, _ = load(stored, server.url, "paper", LADDER, slo_s=0.9)

    decisions = [fields for event, fields in events if event == "decision"]
    # three chunks and the tail at a second each exceed the deadline; the medium level comes first, unmeasured
    assert decisions[0]["action"] == "cachegen-2"
    assert decisions[0]["throughput_bps"] is None
    assert all(fields["throughput_bps"] > 0 for fields in decisions[1:])
    assert loaded.chunk_sources == tuple(fields["action"] for fields in decisions)
    assert sum(clock.stop().values()) == pytest.approx(clock.elapsed_s(), abs=0.01)


def test_the_papers_controller_recomputes_when_that_fits(stored):
    with running_server(stored.root) as server:
        loaded, _, _, _ = load(stored, server.url, "paper", LADDER, slo_s=60.0)
    assert loaded.chunk_sources == ("recompute",) * 4


def chunk_path(stored, index, encoding):
    return stored.root / chunk_name(stored.manifest.chunks[index].key, encoding)


def test_a_missing_chunk_is_recomputed_and_logged(fresh):
    chunk_path(fresh, 1, "raw").unlink()
    with running_server(fresh.root) as server:
        loaded, events, _, _ = load(fresh, server.url, "fixed:raw", ["raw"])

    assert loaded.chunk_sources == ("raw", "recompute", "raw", "raw")
    torch.testing.assert_close(loaded.cache.chunk(0, 56), fresh.cache.chunk(0, 56))
    [failure] = [fields for event, fields in events if event == "fetch_failed"]
    assert failure["chunk"] == 1
    assert "no such object" in failure["error"]


def test_a_damaged_chunk_is_recomputed_and_logged(fresh):
    path = chunk_path(fresh, 2, "cachegen-0")
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with running_server(fresh.root) as server:
        loaded, events, _, _ = load(fresh, server.url, "fixed:cachegen-0", ["cachegen-0"])

    assert loaded.chunk_sources == ("cachegen-0", "cachegen-0", "recompute", "cachegen-0")
    [failure] = [fields for event, fields in events if event == "decode_failed"]
    assert failure["chunk"] == 2


def test_another_contexts_chunk_in_the_right_place_is_refused_and_recomputed(fresh):
    foreign = chunk_path(fresh, 0, "raw").read_bytes()
    path = chunk_path(fresh, 1, "raw")
    path.write_bytes(foreign)
    with running_server(fresh.root) as server:
        loaded, events, _, _ = load(fresh, server.url, "fixed:raw", ["raw"])

    assert loaded.chunk_sources == ("raw", "recompute", "raw", "raw")
    assert "chunk_key" in next(fields["error"] for event, fields in events if event == "decode_failed")
    torch.testing.assert_close(loaded.cache.chunk(0, 56), fresh.cache.chunk(0, 56))


def test_another_level_in_the_right_place_is_refused_and_recomputed(fresh):
    chunk_path(fresh, 0, "cachegen-0").write_bytes(chunk_path(fresh, 0, "cachegen-4").read_bytes())
    with running_server(fresh.root) as server:
        loaded, _, _, _ = load(fresh, server.url, "fixed:cachegen-0", ["cachegen-0"])
    assert loaded.chunk_sources[0] == "recompute"


def test_another_models_context_is_refused(stored):
    with running_server(stored.root) as server, pytest.raises(MismatchError, match="model fingerprint"):
        load(stored, server.url, "fixed:raw", ["raw"], model=tiny_llama(seed=7))


def test_an_absent_context_is_named(fresh):
    (fresh.root / manifest_name(fresh.manifest.context_key)).unlink()
    (fresh.root / tokens_name(fresh.manifest.context_key)).unlink()
    with running_server(fresh.root) as server, pytest.raises(ObjectNotFoundError, match=r"(manifests|tokens)/"):
        load(fresh, server.url, "fixed:raw", ["raw"])


def test_a_server_that_is_not_there_is_an_error_not_a_hang(stored):
    with running_server(stored.root) as server:
        pass
    with pytest.raises(StoreUnavailableError, match="ClientConnectorError"):
        load(stored, server.url, "fixed:raw", ["raw"], slo_s=0.1)


def test_a_context_shorter_than_a_chunk_loads(tmp_path):
    short = store_context(tmp_path, tokens=CHUNK_TOKENS - 5)
    with running_server(short.root) as server:
        loaded, _, _, _ = load(short, server.url, "fixed:raw", ["raw"])
    assert torch.equal(loaded.cache.chunk(0, 11), short.cache.chunk(0, 11))


def test_a_loaded_cache_answers_as_the_calculated_one(stored):
    question = random_tokens(4, seed=3)
    options = {"max_new_tokens": 10, "do_sample": False}
    with running_server(stored.root) as server:
        loaded, _, _, _ = load(stored, server.url, "fixed:raw", ["raw"])
    answer = stored.model.generate(loaded.cache, question, **options)
    assert answer == stored.model.generate(stored.cache, question, **options)


class HalfAnIndex:
    """A source without manifests that never comes to the end of the tokens."""

    received_bytes = 0

    async def fetch(self, name, max_bytes, on_first_byte, on_bytes=None):
        if name.startswith("manifests/"):
            raise ObjectNotFoundError(name)
        await asyncio.Event().wait()

    async def close(self):
        pass


def test_a_failed_index_leaves_no_fetch_behind(stored):
    async def run():
        limits = LoadLimits(patience_s=0.1)
        loader = ContextLoader(stored.model, stored.profile, HalfAnIndex(), COSTS, lambda *_, **__: None, limits)
        clock = StageClock(time.monotonic())
        with pytest.raises(ObjectNotFoundError):
            await loader.load(stored.manifest.context_key, make_controller("text", []), [], 0.1, clock)
        return asyncio.all_tasks() - {asyncio.current_task()}

    assert asyncio.run(run()) == set()


def test_a_cancelled_load_waits_for_its_thread_and_lets_the_loop_run(stored, monkeypatch):
    begun, may_end, ended = threading.Event(), threading.Event(), []

    def slow_prefill(cache, token_ids):
        begun.set()
        ended.append(may_end.wait(timeout=20))

    async def run():
        source = StoreSource(open_store(str(stored.root)))
        loader = ContextLoader(stored.model, stored.profile, source, COSTS, lambda *_, **__: None)
        clock = StageClock(time.monotonic())
        load = asyncio.ensure_future(
            loader.load(stored.manifest.context_key, make_controller("text", []), [], 60.0, clock)
        )
        await asyncio.to_thread(begun.wait)
        load.cancel()
        # in a turn after the one in which the load is cancelled
        asyncio.get_running_loop().call_later(0.01, may_end.set)
        await asyncio.wait([load])
        assert load.cancelled()

    monkeypatch.setattr(stored.model, "prefill", slow_prefill)
    asyncio.run(run())

    assert ended == [True]
    assert not any(thread.name.startswith(("decode", "recompute")) for thread in threading.enumerate())


def test_meet_over_a_real_server_gives_the_same_cache(stored):
    with running_server(stored.root) as server:
        loaded, _, _, _ = load(stored, server.url, "meet", ["raw"], slo_s=3.0)

    torch.testing.assert_close(loaded.cache.chunk(0, 56), stored.cache.chunk(0, 56))
    for index, source in enumerate(loaded.chunk_sources):
        if source == "raw":
            span = index * CHUNK_TOKENS, min(56, (index + 1) * CHUNK_TOKENS)
            assert torch.equal(loaded.cache.chunk(*span), stored.cache.chunk(*span))


def test_a_damaged_chunk_comes_in_another_level_where_the_controller_has_one(fresh):
    """The paper's controller begins with the medium level; ``fixed`` recomputes, see above."""
    path = chunk_path(fresh, 0, "cachegen-2")
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    with running_server(fresh.root) as server:
        loaded, events, _, _ = load(fresh, server.url, "paper", LADDER, slo_s=0.9)

    assert [fields["chunk"] for event, fields in events if event == "decode_failed"] == [0]
    assert loaded.chunk_sources[0] in {"cachegen-0", "cachegen-4"}
    assert loaded.wasted_bytes == fresh.manifest.chunks[0].encodings["cachegen-2"]


@pytest.mark.parametrize(("spec", "estimator"), [("paper", "last-chunk"), ("meet", "two-speed")])
def test_a_decision_is_logged_with_all_that_it_knew_and_its_outcome(fresh, spec, estimator):
    first = 0 if spec == "paper" else 3
    path = chunk_path(fresh, first, "cachegen-2")
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    with running_server(fresh.root) as server:
        loaded, events, clock, source = load(fresh, server.url, spec, LADDER, slo_s=0.9)

    decisions = [fields for event, fields in events if event == "decision"]
    assert {fields["estimator"] for fields in decisions} == {estimator}
    assert decisions[0].keys() == decisions[-1].keys()
    for fields in decisions:
        assert 0 < fields["elapsed_s"] < clock.elapsed_s()
        assert fields["remaining_s"] == fields["deadline_s"] - fields["elapsed_s"]
        assert fields["flying_bytes"] == fields["ahead_bytes"] == 0  # nobody else is there
        assert fields["finish_s"]["recompute"] > fields["elapsed_s"]
        if fields["throughput_bps"] is None:
            assert fields["planned_finish_s"] is None
        else:
            assert fields["planned_finish_s"] >= fields["elapsed_s"]
    if spec == "paper":
        assert all(fields["planned_finish_s"] == fields["finish_s"][fields["action"]] for fields in decisions)

    [(event, outcome)] = [line for line in events if line[0] == "loaded"]
    assert events[-1] == (event, outcome)
    sizes = [
        chunk.encodings.get(name, 0) for chunk, name in zip(fresh.manifest.chunks, loaded.chunk_sources, strict=True)
    ]
    assert sum(outcome["bytes_by_encoding"].values()) == sum(sizes)
    assert outcome["wasted_bytes"] == loaded.wasted_bytes == fresh.manifest.chunks[first].encodings["cachegen-2"]
    assert outcome["recomputed"] == [at for at, name in enumerate(loaded.chunk_sources) if name == "recompute"]
    assert outcome["deadline_s"] == 0.9
    assert decisions[-1]["elapsed_s"] < outcome["ended_s"] < clock.elapsed_s()
    index_bytes = source.received_bytes - sum(sizes) - loaded.wasted_bytes
    names = (manifest_name(fresh.manifest.context_key), tokens_name(fresh.manifest.context_key))
    assert index_bytes == sum((fresh.root / name).stat().st_size for name in names)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_any_estimator_goes_with_any_controller(stored, name):
    with running_server(stored.root) as server:
        loaded, events, _, _ = load(stored, server.url, "paper", LADDER, slo_s=0.9, estimator=name)

    assert "cachegen-2" in loaded.chunk_sources  # the first one, unmeasured
    assert {fields["estimator"] for event, fields in events if event == "decision"} == {name}


def test_an_estimator_that_is_not_there_is_refused_before_the_store_is_asked(stored):
    with pytest.raises(UnknownNameError, match="no throughput estimator 'best'"):
        load(stored, "http://127.0.0.1:9", "paper", LADDER, estimator="best")


def test_a_load_cancelled_while_it_fetches_closes_its_connections(stored):
    async def run(url):
        source, begun = HttpSource(url), asyncio.Event()
        loader = ContextLoader(
            stored.model, stored.profile, source, COSTS, lambda event, **_: event == "decision" and begun.set()
        )
        clock, controller = StageClock(time.monotonic()), make_controller("fixed:raw", ["raw"])
        load = asyncio.ensure_future(loader.load(stored.manifest.context_key, controller, ["raw"], 60.0, clock))
        await begun.wait()
        load.cancel()
        await asyncio.wait([load])
        await source.close()
        # a connection that is closed leaves the loop in the next turn
        await until(lambda: asyncio.all_tasks() == {asyncio.current_task()})
        return load.cancelled()

    with running_server(stored.root) as server:
        assert asyncio.run(run(server.url))
