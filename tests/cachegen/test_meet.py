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


def decide(state, ladder=LADDER):
    return make_controller("meet", ladder).decide(state)


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
    assert decide(state).action == Stream("medium")  # three before the last: 2.4 s of fine ones, with 2 s to spend
    assert decide(replace(state, remaining=chunks[:3])).action == Stream("fine")
    assert decide(replace(state, remaining=chunks[:3], decode_s=6.8)).action == Stream("coarse")  # these wait already


@pytest.mark.parametrize(
    ("bps", "level"),
    [
        # of 10 s: fine ones take 1.9 s, which is within the share whatever coarse ones take
        (1.28e6 / 1.9, "fine"),
        # 2.2 s, beyond it and beyond one and a half of the .6 s of coarse ones; 1.1 s of medium ones
        (1.28e6 / 2.2, "medium"),
        # coarse ones take 2 s, so that medium ones may not take 4
        (0.32e6 / 2.0, "coarse"),
    ],
)
def test_a_finer_level_may_take_a_share_of_the_time_left(bps, level):
    assert decide(make_state(throughput_bps=bps, recompute_s=100.0)).action == Stream(level)


@pytest.mark.parametrize(("deadline_s", "level"), [(10.0, "fine"), (7.0, "coarse")])
def test_or_half_as_long_again_as_the_plan_that_ends_first_with_time_to_spare(deadline_s, level):
    # decoding hides most of what separates the levels: fine ones take 5.6 s, coarse ones 4.4
    decode_s = {"fine": 1.4, "medium": 1.4, "coarse": 1.1}
    chunks = tuple(ChunkOptions(index, 16, SIZES, 100.0, decode_s) for index in range(5))
    state = make_state(throughput_bps=1e9, remaining=chunks, deadline_s=deadline_s)

    assert decide(state).action == Stream(level)
    assert make_controller("meet:0", LADDER).decide(state).action == Stream("coarse")


def test_a_lower_rate_gives_a_coarser_level_and_never_a_finer_one():
    ranks = []
    for bps in (1e9, 1e6, 5e5, 4e5, 3e5, 2e5, 1e5, 5e4, 2e4):
        decision = decide(make_state(throughput_bps=bps, recompute_s=100.0))
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
