"""The plan against brute force: every meeting point at every level."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cachegen.controllers import ChunkOptions, LoadState, Transfer
from cachegen.controllers.plan import ConstantRate, make_plan

LADDER = ["fine", "medium", "coarse"]


@st.composite
def states(draw, missing=False):
    chunks = []
    for index in range(draw(st.integers(1, 7))):
        sizes = sorted(draw(st.lists(st.integers(0, 10**7), min_size=3, max_size=3)), reverse=True)
        names = [name for name in LADDER if not (missing and draw(st.booleans()))]
        decode_s = draw(st.dictionaries(st.sampled_from(LADDER), st.floats(0, 1)))
        sizes_bytes = {name: sizes[LADDER.index(name)] for name in names}
        chunks.append(ChunkOptions(index, 16, sizes_bytes, draw(st.floats(0, 3)), decode_s))
    elapsed_s = draw(st.floats(0, 5))
    flying = ()
    if draw(st.booleans()):
        options = ChunkOptions(len(chunks), 16, {"fine": 10**6}, 1.0, {"fine": draw(st.floats(0, 1))})
        flying = (Transfer(len(chunks), "fine", 10**6, draw(st.integers(0, 10**6)), options),)
    return LoadState(
        elapsed_s=elapsed_s,
        deadline_s=10.0,
        remaining=tuple(chunks),
        throughput_bps=None,
        in_flight=flying,
        rtt_s=draw(st.floats(0, 0.5)),
        compute_free_s=draw(st.floats(0, 10)),
        decode_s=draw(st.floats(0, 2)) + sum(transfer.decode_s for transfer in flying),
    )


RATES = st.just(0.0) | st.floats(1e4, 1e9)


def ends_s(state, names, rate_bps):
    """When the load ends if chunks come as ``names`` says: computing, delivery and the decoding of all but the last
    object go on side by side; gaps come last."""
    front = next((place for place, name in enumerate(names) if name is not None), len(names))
    compute_s = max(state.elapsed_s, state.compute_free_s)
    compute_s += sum(chunk.recompute_s for chunk in state.remaining[:front])
    gaps = zip(state.remaining[front:], names[front:], strict=True)
    gaps_s = sum(chunk.recompute_s for chunk, name in gaps if name is None)
    streamed = [(chunk, name) for chunk, name in zip(state.remaining, names, strict=True) if name is not None]
    link_s = state.elapsed_s + (0 if state.in_flight else state.rtt_s)

    def arrival_s(num_bytes):
        return link_s + (8 * num_bytes / rate_bps if rate_bps else math.inf) if num_bytes else link_s

    # what is on its way comes first and is decoded; then one object after the other, from the back
    decoder_free_s = begun_s = state.elapsed_s + state.decode_s
    if state.in_flight:
        [flying] = state.in_flight
        arrived_s = arrival_s(flying.missing_bytes)
        decoder_free_s = max(decoder_free_s, arrived_s + flying.decode_s)
        begun_s = decoder_free_s - flying.decode_s
    size_bytes = state.backlog_bytes
    for chunk, name in reversed(streamed):
        size_bytes += chunk.sizes_bytes[name]
        begun_s = max(decoder_free_s, arrival_s(size_bytes))
        decoder_free_s = begun_s + chunk.decode_s.get(name, 0.0)
    return max(compute_s, begun_s) + gaps_s


def splits(state, level):
    """Every meeting point, the back in this level or, where a chunk lacks it, the next coarser that it has."""
    available = [
        next((name for name in LADDER[level:] if name in chunk.sizes_bytes), None) for chunk in state.remaining
    ]
    for count in range(len(available) + 1):
        yield (None,) * count + tuple(available[count:])


@settings(deadline=None)
@given(states(missing=True), RATES, st.floats(0, 20))
def test_the_plan_is_the_best_of_all(state, rate_bps, target_s):
    plan = make_plan(state, LADDER, ConstantRate(rate_bps), target_s)

    best_s = [min(ends_s(state, names, rate_bps) for names in splits(state, level)) for level in range(len(LADDER))]
    wanted_s = next((end_s for end_s in best_s if end_s <= target_s), min(best_s))
    assert plan.finish_s == pytest.approx(wanted_s)
    assert ends_s(state, plan.names, rate_bps) == pytest.approx(plan.finish_s)


@settings(deadline=None)
@given(states(), RATES)
def test_without_time_the_plan_ends_no_later_than_text_or_any_level_alone(state, rate_bps):
    plan = make_plan(state, LADDER, ConstantRate(rate_bps), target_s=-1.0)

    assert plan.finish_s <= ends_s(state, (None,) * len(state.remaining), rate_bps) + 1e-9
    for name in LADDER:
        assert plan.finish_s <= ends_s(state, (name,) * len(state.remaining), rate_bps) + 1e-9


def test_the_finest_level_that_holds_the_target_is_taken():
    chunks = tuple(ChunkOptions(index, 16, {"fine": 4000, "medium": 2000, "coarse": 1000}, 9.0) for index in range(2))
    state = LoadState(0.0, 10.0, chunks, None)

    for target_s, name in ((8.0, "fine"), (7.9, "medium"), (3.9, "coarse"), (0.1, "coarse")):
        assert make_plan(state, LADDER, ConstantRate(8000), target_s).names == (name, name)


def test_a_chunk_that_lacks_a_level_takes_the_next_coarser_one():
    sizes = {"fine": 1000, "medium": 500, "coarse": 250}
    lacking = {"coarse": 250}
    chunks = tuple(ChunkOptions(index, 16, lacking if index == 1 else sizes, 90.0) for index in range(3))

    plan = make_plan(LoadState(0.0, 10.0, chunks, None), LADDER, ConstantRate(8e6), 10.0)

    assert plan.names == ("fine", "coarse", "fine")


def test_without_any_encoding_all_is_recomputed():
    chunks = tuple(ChunkOptions(index, 16, {}, 2.0) for index in range(3))

    plan = make_plan(LoadState(1.0, 10.0, chunks, None), LADDER, ConstantRate(8e6), 3.0)

    assert plan.names == (None, None, None)
    assert plan.finish_s == 7.0
