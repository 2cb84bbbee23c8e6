"""``meet`` on numbers alone: which end, which level, when to give up."""

from dataclasses import replace

import pytest

from cachegen.controllers import ChunkOptions, LoadState, Recompute, Stream, Transfer, make_controller
from cachegen.errors import InvalidInputError

LADDER = ["fine", "medium", "coarse"]
SIZES = {"fine": 40_000, "medium": 20_000, "coarse": 10_000}


def make_state(count=4, recompute_s=1.0, **changes):
    chunks = tuple(ChunkOptions(index, 16, SIZES, recompute_s) for index in range(count))
    return LoadState(**{"elapsed_s": 0.0, "deadline_s": 10.0, "remaining": chunks, "throughput_bps": None, **changes})


def decide(state, ladder=LADDER, name="meet"):
    return make_controller(name, ladder).decide(state)


def in_flight(index, received_bytes=0):
    return Transfer(index, "fine", SIZES["fine"], received_bytes, ChunkOptions(index, 16, SIZES, 1.0))


def test_it_begins_at_both_ends():
    first = decide(make_state())
    assert (first.index, first.action) == (3, Stream("medium"))

    state = make_state()
    second = decide(replace(state, remaining=state.remaining[:3], in_flight=(in_flight(3),)))
    assert (second.index, second.action) == (0, Recompute())


def test_a_link_that_is_slow_for_every_level_leaves_all_to_the_computer():
    decision = decide(make_state(throughput_bps=1000.0))
    assert (decision.index, decision.action) == (0, Recompute())


def test_a_link_that_seems_too_slow_is_tried_with_one_object_at_a_time():
    state = make_state(throughput_bps=1000.0, may_recompute=False)
    assert (decide(state).index, decide(state).action) == (3, Stream("coarse"))
    assert decide(replace(state, in_flight=(in_flight(4),))) is None
    assert decide(replace(state, remaining=state.remaining[:1])) is None  # the next to be recomputed


def test_a_fast_link_and_a_slow_computer_stream_all_from_the_back():
    state = make_state(throughput_bps=1e8, recompute_s=100.0)
    assert (decide(state).index, decide(state).action) == (3, Stream("fine"))
    assert decide(replace(state, may_fetch=False)) is None


def test_a_link_that_is_quicker_than_the_decoder_gives_the_level_that_can_be_decoded_in_time():
    decode_s = {"fine": 0.8, "medium": 0.2, "coarse": 0.05}
    chunks = tuple(ChunkOptions(index, 16, SIZES, 100.0, decode_s) for index in range(4))
    state = make_state(throughput_bps=1e9, remaining=chunks)

    def level(state):
        return decide(state, name="meet:0.2").action.encoding_name

    assert level(state) == "medium"  # three before the last: 2.4 s of fine ones, with 2 s to spend
    assert level(replace(state, remaining=chunks[:3])) == "fine"
    assert level(replace(state, remaining=chunks[:3], decode_s=6.8)) == "coarse"  # these wait already


@pytest.mark.parametrize(
    ("coarse_s", "deadline_s", "level"),
    [
        # medium ones take 1.3 times as long as coarse ones, fine ones 1.6 times
        (2.0, 10.0, "medium"),
        # 5.2 of .7 x 7.5 s, then of .7 x 7.4 s
        (4.0, 7.5, "medium"),
        (4.0, 7.4, "coarse"),
        # fine ones take .192 of .02 x 10 s, then .208 s
        (0.12, 10.0, "fine"),
        (0.13, 10.0, "medium"),
    ],
)
def test_a_finer_level_may_take_somewhat_longer_than_the_plan_that_ends_first(coarse_s, deadline_s, level):
    sizes = {"fine": 16_000, "medium": 13_000, "coarse": 10_000}
    chunks = tuple(ChunkOptions(index, 16, sizes, 100.0) for index in range(4))
    state = make_state(throughput_bps=32e4 / coarse_s, deadline_s=deadline_s, remaining=chunks)

    assert decide(state).action == Stream(level)
    assert decide(state, name="meet:0").action == Stream("coarse")


@pytest.mark.parametrize("name", ["meet", "meet:0.2"])
def test_a_lower_rate_gives_a_coarser_level_and_never_a_finer_one(name):
    ranks = []
    for bps in (1e9, 1e7, 5e6, 3e6, 1e6, 5e5, 4e5, 3e5, 2e5, 1e5, 5e4, 2e4):
        decision = decide(make_state(throughput_bps=bps, recompute_s=100.0), name=name)
        ranks.append(LADDER.index(decision.action.encoding_name))

    assert ranks == sorted(ranks)
    assert set(ranks) == {0, 1, 2}


def test_nothing_is_given_up_while_the_deadline_holds():
    state = make_state(throughput_bps=1e6, in_flight=(in_flight(4),))
    assert make_controller("meet", LADDER).review(state) == ()


def test_an_object_is_given_up_when_the_rate_collapses():
    state = make_state(throughput_bps=100.0, in_flight=(in_flight(4),))
    controller = make_controller("meet", LADDER)
    # there is more to recompute before it: it may as well go on arriving
    assert controller.review(state) == ()
    assert controller.review(replace(state, remaining=())) == (4,)
    assert controller.review(replace(state, remaining=(), may_recompute=False)) == ()


def test_an_object_is_given_up_for_a_coarser_one_when_the_rate_falls():
    state = make_state(count=1, recompute_s=100.0, throughput_bps=5000.0, in_flight=(in_flight(1),))
    assert make_controller("meet", LADDER).review(state) == (1,)


def test_an_object_that_has_nearly_arrived_is_kept():
    state = make_state(
        count=1, deadline_s=0.5, throughput_bps=8000.0, in_flight=(in_flight(1, received_bytes=SIZES["fine"] - 10),)
    )
    assert make_controller("meet", LADDER).review(state) == ()


def test_a_review_bears_that_no_chunk_is_undecided():
    state = make_state(throughput_bps=100.0, in_flight=(in_flight(0),), remaining=())
    assert make_controller("meet", LADDER).review(state) == (0,)


@pytest.mark.parametrize("throughput_bps", [None, 0.0, 1e6])
def test_a_chunk_that_the_store_does_not_give_is_recomputed(throughput_bps):
    state = make_state(count=1, throughput_bps=throughput_bps)
    [chunk] = state.remaining
    assert decide(replace(state, remaining=(replace(chunk, sizes_bytes={}),))).action == Recompute()


def test_it_needs_something_to_choose_from():
    with pytest.raises(InvalidInputError, match="at least one encoding"):
        make_controller("meet", [])
    with pytest.raises(InvalidInputError, match="share of the time left to spend is a number"):
        make_controller("meet:x", LADDER)


@pytest.mark.parametrize("count", [1, 4])
def test_what_cannot_be_recomputed_is_streamed_over_a_link_that_seems_dead(count):
    state = make_state(count, recompute_s=1e9, throughput_bps=0.0)
    assert (decide(state).index, decide(state).action) == (count - 1, Stream("coarse"))
    assert decide(state).finish_s["recompute"] is None

    chunk = replace(state.remaining[0], index=count)
    flying = replace(state, in_flight=(Transfer(count, "coarse", SIZES["coarse"], 0, chunk),), remaining=())
    assert make_controller("meet", LADDER).review(flying) == ()
