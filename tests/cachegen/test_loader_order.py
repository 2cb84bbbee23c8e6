"""Loading when chunks come in any order, late, twice or not at all: the same cache, and nothing left behind."""

import asyncio
import threading

import pytest
import torch
from gated_source import GatedSource, load_gated, until
from stored_context import CHUNK_TOKENS, store_context

from cachegen import (
    LinkKnowledge,
    LoadLimits,
    decode_chunk,
    make_controller,
)
from cachegen.controllers import InOrderController, Recompute, Stream


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    return store_context(tmp_path_factory.mktemp("store"))


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 1, 0), (2, 0, 3, 1)], ids=str)
def test_chunks_that_arrive_in_any_order_give_the_same_cache(stored, order):
    async def drive(source, load):
        await until(lambda: len(source.asked) == 4)
        for index in order:
            source.gate(index).set()
            await until(lambda: source.flying < 4 - order.index(index))  # noqa: B023 - awaited in this turn

    source = GatedSource(stored)
    # of a link that is known to be fast, as much is asked for as may be
    fast = LinkKnowledge(throughput_bps=1e9)
    loaded, events = load_gated(stored, source, drive, limits=LoadLimits(in_flight=8), known=fast)

    # all four were on their way at once
    assert source.most_flying == 4
    assert [fields["chunk"] for event, fields in events if event == "fetch"] == list(order)
    assert torch.equal(loaded.cache.chunk(0, 56), stored.cache.chunk(0, 56))
    assert loaded.cache.token_ids == stored.cache.token_ids


def test_meet_recomputes_the_front_while_the_back_arrives(stored):
    async def drive(source, load):
        await until(lambda: source.asked == [3])
        await until(lambda: any(event == "recompute" for event, _ in log))
        for index in range(4):
            source.gate(index).set()

    source, log = GatedSource(stored), []
    controller = make_controller("meet", ["raw"])
    recomputed = stored.model.prefill

    def noted(cache, token_ids):
        recomputed(cache, token_ids)
        log.append(("recompute", len(token_ids)))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stored.model, "prefill", noted)
        loaded, _ = load_gated(stored, source, drive, controller)

    streamed = loaded.chunk_sources.index("raw")
    assert loaded.chunk_sources == ("recompute",) * streamed + ("raw",) * (4 - streamed)
    assert 1 <= streamed <= 3
    first_token = streamed * CHUNK_TOKENS
    assert torch.equal(loaded.cache.chunk(first_token, 56), stored.cache.chunk(first_token, 56))
    torch.testing.assert_close(loaded.cache.chunk(0, first_token), stored.cache.chunk(0, first_token))


def test_a_fetch_given_up_is_cancelled_at_its_source(stored):
    class GivesUpOnce(InOrderController):
        """Streams, and gives chunk 1 up as soon as it flies."""

        encodings = ("raw",)

        def choose(self, state, finish_s):
            given_up = state.remaining[0].index == 1 and 1 in source.asked
            return (Recompute() if given_up else Stream("raw")), "as told"

        def review(self, state):
            return tuple(flying.index for flying in state.in_flight if flying.index == 1)

    async def drive(source, load):
        await until(lambda: source.cancelled == [1])
        for index in (0, 2, 3):
            source.gate(index).set()

    source = GatedSource(stored)
    loaded, events = load_gated(stored, source, drive, GivesUpOnce())

    assert loaded.chunk_sources == ("raw", "recompute", "raw", "raw")
    assert [fields["chunk"] for event, fields in events if event == "fetch_cancelled"] == [1]
    torch.testing.assert_close(loaded.cache.chunk(0, 56), stored.cache.chunk(0, 56))


@pytest.mark.parametrize("failures", [1, 3, 8])
def test_a_store_that_fails_for_a_while_is_asked_again(stored, failures):
    async def drive(source, load):
        for index in range(4):
            source.gate(index).set()

    source = GatedSource(stored, failures)
    loaded, events = load_gated(stored, source, drive)

    assert [event for event, _ in events].count("fetch_failed") == failures
    assert len(source.asked) == failures + loaded.chunk_sources.count("raw")
    torch.testing.assert_close(loaded.cache.chunk(0, 56), stored.cache.chunk(0, 56))


def test_fetches_wait_for_a_decoder_that_is_held_up(stored, monkeypatch):
    may_decode = threading.Event()

    def held(*arguments, **options):
        assert may_decode.wait(timeout=60)
        return decode_chunk(*arguments, **options)

    async def drive(source, load):
        for index in range(4):
            source.gate(index).set()
        # one in the decoder and one behind it
        await until(lambda: len(source.asked) == 2 and not source.flying)
        for _ in range(20):
            await asyncio.sleep(0.01)
            assert len(source.asked) == 2
        may_decode.set()

    monkeypatch.setattr("cachegen.assembly.decode_chunk", held)
    source = GatedSource(stored)
    loaded, _ = load_gated(stored, source, drive, limits=LoadLimits(in_flight=1, undecoded=2))

    assert torch.equal(loaded.cache.chunk(0, 56), stored.cache.chunk(0, 56))


@pytest.mark.parametrize("phase", ["index", "fetch", "decode", "recompute"])
def test_a_load_cancelled_in_any_phase_leaves_nothing_behind(stored, monkeypatch, phase):
    begun, may_end = threading.Event(), threading.Event()

    def slow(*arguments, **options):
        begun.set()
        may_end.wait(timeout=20)
        return decode_chunk(*arguments, **options)

    def slow_prefill(cache, token_ids):
        begun.set()
        may_end.wait(timeout=20)

    async def drive(source, load):
        match phase:
            case "index":
                await asyncio.sleep(0)
            case "fetch":
                await until(lambda: source.flying)
            case _:
                for index in range(4):
                    source.gate(index).set()
                await until(begun.is_set)
        load.cancel()
        asyncio.get_running_loop().call_later(0.01, may_end.set)
        await asyncio.wait([load])
        assert load.cancelled()

    monkeypatch.setattr("cachegen.assembly.decode_chunk", slow)
    monkeypatch.setattr(stored.model, "prefill", slow_prefill)
    source = GatedSource(stored)
    controller = make_controller("text" if phase == "recompute" else "fixed:raw", ["raw"])
    loaded, _ = load_gated(stored, source, drive, controller)

    assert loaded is None
    assert source.flying == 0
