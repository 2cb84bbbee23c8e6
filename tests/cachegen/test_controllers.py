"""Controllers on numbers alone: Algorithm 1 rule by rule, its monotonicity, a link that drops in mid-load."""

import dataclasses
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cachegen.controllers import (
    CONTROLLERS,
    RECOMPUTE,
    ChunkOptions,
    LoadState,
    Recompute,
    Stream,
    Transfer,
    make_controller,
)
from cachegen.errors import InvalidInputError, UnknownNameError

LEVELS = ["fine", "medium", "coarse"]


def make_state(elapsed_s=0.0, deadline_s=4.0, throughput_bps=None, num_chunks=2, recompute_s=10.0):
    """Two chunks of 1000, 500 and 250 bytes, whose recomputation alone takes too long."""
    sizes_bytes = {"fine": 1000, "medium": 500, "coarse": 250}
    chunks = tuple(ChunkOptions(3 + place, 64, sizes_bytes, recompute_s) for place in range(num_chunks))
    return LoadState(elapsed_s, deadline_s, chunks, throughput_bps)


def decide(state, encodings=LEVELS):
    return make_controller("paper", encodings).decide(state)


@pytest.mark.parametrize(
    ("throughput_bps", "level"),
    [(5000, "fine"), (4000, "fine"), (3999, "medium"), (2000, "medium"), (1000, "coarse"), (1, "coarse")],
)
def test_paper_takes_the_finest_level_in_which_all_remaining_bytes_fit(throughput_bps, level):
    assert decide(make_state(throughput_bps=throughput_bps)).action == Stream(level)


def test_paper_counts_the_time_that_has_passed():
    assert decide(make_state(elapsed_s=2.0, throughput_bps=4000)).action == Stream("medium")


def test_paper_recomputes_when_all_remaining_chunks_fit_exactly():
    assert decide(make_state(throughput_bps=1e9, recompute_s=2.0)).action == Recompute()
    assert decide(make_state(throughput_bps=1e9, recompute_s=2.001)).action == Stream("fine")


def test_paper_does_not_recompute_when_only_the_next_chunk_would_fit():
    assert decide(make_state(throughput_bps=1.0, recompute_s=3.0)).action == Stream("coarse")


@pytest.mark.parametrize(
    ("encodings", "level"),
    [(LEVELS, "medium"), (["fine", "coarse"], "coarse"), (["fine"], "fine")],
    ids=["three", "two", "one"],
)
def test_paper_starts_at_the_medium_level(encodings, level):
    decision = decide(make_state(), encodings)

    assert decision.action == Stream(level)
    assert "no throughput" in decision.reason


def test_paper_starts_with_recomputation_when_that_fits():
    assert decide(make_state(recompute_s=1.0)).action == Recompute()


@pytest.mark.parametrize("throughput_bps", [None, 0.0, 5e-324, 1e12])
@pytest.mark.parametrize("deadline_s", [5.0, 4.0, -1.0])
def test_paper_takes_the_coarsest_level_once_no_time_remains(throughput_bps, deadline_s):
    state = make_state(elapsed_s=5.0, deadline_s=deadline_s, throughput_bps=throughput_bps)

    assert decide(state).action == Stream("coarse")


@pytest.mark.parametrize("throughput_bps", [0.0, 5e-324])
def test_paper_takes_the_coarsest_level_on_a_dead_link(throughput_bps):
    decision = decide(make_state(throughput_bps=throughput_bps))

    assert decision.action == Stream("coarse")
    assert decision.finish_s == {RECOMPUTE: 20.0, "fine": None, "medium": None, "coarse": None}


def test_paper_has_no_choice_with_one_level():
    for throughput_bps in (None, 0.0, 1.0, 1e9):
        assert decide(make_state(throughput_bps=throughput_bps), ["medium"]).action == Stream("medium")


def test_decision_says_when_each_option_would_end_the_load():
    state = make_state(elapsed_s=1.0, throughput_bps=8000, recompute_s=2.5)

    for spec in ("text", "fixed:coarse", "paper"):
        decision = make_controller(spec, LEVELS).decide(state)
        assert decision.finish_s == {RECOMPUTE: 6.0, "fine": 3.0, "medium": 2.0, "coarse": 1.5}


@pytest.mark.parametrize("throughput_bps", [None, 0.0, 1e9])
def test_baselines_do_not_look_at_the_link(throughput_bps):
    state = make_state(throughput_bps=throughput_bps, recompute_s=0.1)

    assert make_controller("text", LEVELS).decide(state).action == Recompute()
    assert make_controller("fixed:fine", LEVELS).decide(state).action == Stream("fine")


# Properties of Algorithm 1 over any sizes that do not grow along the ladder.


@st.composite
def states(draw):
    num_chunks = draw(st.integers(1, 5))
    num_levels = draw(st.integers(1, 5))
    chunks = []
    for index in range(num_chunks):
        sizes = sorted(draw(st.lists(st.integers(1, 10**7), min_size=num_levels, max_size=num_levels)), reverse=True)
        names = {f"level-{level}": size for level, size in enumerate(sizes)}
        chunks.append(ChunkOptions(index, 16, names, draw(st.floats(0, 3))))
    return LoadState(
        elapsed_s=draw(st.floats(0, 10)),
        deadline_s=draw(st.floats(-1, 10)),
        remaining=tuple(chunks),
        throughput_bps=draw(st.none() | st.floats(0, 1e9)),
    )


def rank(state):
    """Return how coarse the decision is: -1 for recomputation, else the level."""
    encodings = list(state.remaining[0].sizes_bytes)
    action = decide(state, encodings).action
    return -1 if action == Recompute() else encodings.index(action.encoding_name)


@settings(deadline=None)
@given(states(), st.floats(0, 1e9))
def test_more_throughput_never_gives_a_coarser_level(state, more_bps):
    slower = dataclasses.replace(state, throughput_bps=state.throughput_bps or 0.0)
    faster = dataclasses.replace(slower, throughput_bps=slower.throughput_bps + more_bps)

    assert rank(faster) <= rank(slower)


@settings(deadline=None)
@given(states(), st.floats(0, 10))
def test_more_time_never_gives_a_coarser_level(state, more_s):
    later = dataclasses.replace(state, deadline_s=state.deadline_s + more_s)

    assert rank(later) <= rank(state)


@settings(deadline=None)
@given(states())
def test_nothing_is_streamed_when_all_can_be_recomputed_in_time(state):
    recompute_s = sum(chunk.recompute_s for chunk in state.remaining)

    assert (rank(state) == -1) == (state.elapsed_s + recompute_s <= state.deadline_s)


@settings(deadline=None)
@given(states())
def test_chosen_level_fits_unless_no_level_does(state):
    decision = decide(state, list(state.remaining[0].sizes_bytes))
    predicted = {name: finish for name, finish in decision.finish_s.items() if finish is not None}
    fitting = [name for name, finish_s in predicted.items() if finish_s <= state.deadline_s]

    if fitting and state.remaining_s > 0:
        assert str(decision.action) in fitting


@settings(deadline=None)
@given(states(), states())
def test_decision_depends_on_the_state_alone(state, other):
    encodings = list(state.remaining[0].sizes_bytes)
    used = make_controller("paper", encodings)
    if list(other.remaining[0].sizes_bytes) == encodings:
        used.decide(other)

    assert used.decide(state) == make_controller("paper", encodings).decide(state)


# A virtual link: bytes over a rate that is constant between given times, on a virtual clock.


def transfer_end_s(start_s, size_bytes, rates):
    """Return when the last byte arrives; ``rates`` is [(from_s, bps), ...], the last one without end."""
    bits = 8 * size_bytes
    now_s = start_s
    for (_, rate_bps), (until_s, _) in zip(rates, [*rates[1:], (math.inf, 0)], strict=True):
        if now_s >= until_s:
            continue
        if bits <= rate_bps * (until_s - now_s):
            return now_s + bits / rate_bps
        bits -= rate_bps * (until_s - now_s)
        now_s = until_s
    raise AssertionError("the last rate has no end")


def load(spec, chunks, deadline_s, rates):
    """Load all chunks one after the other; return when the load ends, and the actions."""
    controller = make_controller(spec, list(chunks[0].sizes_bytes))
    now_s, throughput_bps, actions = 0.0, None, []
    for place in range(len(chunks)):
        state = LoadState(now_s, deadline_s, chunks[place:], throughput_bps)
        action = controller.decide(state).action
        actions.append(action)
        if action == Recompute():
            now_s += chunks[place].recompute_s
            continue
        size_bytes = chunks[place].sizes_bytes[action.encoding_name]
        end_s = transfer_end_s(now_s, size_bytes, rates)
        throughput_bps = 8 * size_bytes / (end_s - now_s)
        now_s = end_s
    return now_s, actions


# The illustration of CacheGen's section 5.3: 1 GB of KV, an SLO of 4 s, and 2, then 0.2, then 1 Gbit/s. The
# times of the changes are ours: with them a load without adaptation takes about the 7 s that the paper gives.
PAPER_RATES = [(0.0, 2e9), (2.0, 0.2e9), (3.0, 1e9)]
PAPER_CHUNKS = tuple(
    ChunkOptions(
        index,
        250,
        {f"level-{level}": round(25e6 * share) for level, share in enumerate((1.0, 0.7, 0.5, 0.3, 0.15))},
        recompute_s=0.15,
    )
    for index in range(40)
)


def test_fixed_level_takes_seven_seconds_over_the_papers_link():
    end_s, _ = load("fixed:level-0", PAPER_CHUNKS, 4.0, PAPER_RATES)

    assert end_s == pytest.approx(6.8)


def test_paper_meets_the_slo_over_the_papers_link_by_going_coarser_after_the_drop():
    end_s, actions = load("paper", PAPER_CHUNKS, 4.0, PAPER_RATES)

    assert end_s <= 4.0
    assert actions[0] == Stream("level-2")
    assert actions[1:15] == [Stream("level-0")] * 14
    assert Stream("level-4") in actions[15:]


def test_paper_recomputes_the_rest_over_a_dying_link_when_that_fits():
    quick = tuple(dataclasses.replace(chunk, recompute_s=0.11) for chunk in PAPER_CHUNKS)
    rates = [(0.0, 4e9), (1.0, 0.2e9)]

    end_s, actions = load("paper", quick, 4.0, rates)

    assert load("text", quick, 4.0, rates)[0] > 4.0
    assert Recompute() in actions
    assert end_s <= 4.0


def test_spec_names_are_checked():
    assert sorted(CONTROLLERS) == ["fixed", "meet", "oracle", "paper", "text"]
    with pytest.raises(UnknownNameError, match="'best'; there are fixed, meet, oracle, paper, text"):
        make_controller("best", LEVELS)
    with pytest.raises(UnknownNameError, match=r"fixed:finest.*fine, medium, coarse"):
        make_controller("fixed:finest", LEVELS)
    with pytest.raises(UnknownNameError, match="fixed:"):
        make_controller("fixed", LEVELS)
    with pytest.raises(InvalidInputError, match="text takes no argument, got 'fine'"):
        make_controller("text:fine", LEVELS)
    with pytest.raises(InvalidInputError, match="at least one encoding"):
        make_controller("paper", [])


@pytest.mark.parametrize("spec", ["fixed:finest", "paper"])
def test_a_chunk_that_the_store_does_not_give_is_recomputed(spec):
    decision = make_controller(spec, ["finest"]).decide(make_state(throughput_bps=1e9))

    assert decision.action == Recompute()
    assert "does not give" in decision.reason


def test_paper_waits_for_its_first_measurement():
    state = make_state()
    [first, *rest] = state.remaining
    flying = Transfer(first.index, "medium", 500, 0, first)
    waiting = dataclasses.replace(state, remaining=tuple(rest), in_flight=(flying,))

    assert decide(waiting) is None
    assert decide(dataclasses.replace(waiting, throughput_bps=1e9)).action == Stream("fine")


def test_paper_sees_whether_recomputing_fits_when_what_is_on_its_way_is_in_place():
    state = make_state(throughput_bps=8000, deadline_s=100.0)
    assert decide(state).action == Recompute()
    flying = Transfer(2, "fine", 1500, 500, state.remaining[0])
    on_its_way = dataclasses.replace(state, in_flight=(flying,))
    assert decide(on_its_way) is None
    # but nothing is waited for where there is no choice
    gone = tuple(dataclasses.replace(chunk, sizes_bytes={}) for chunk in state.remaining)
    assert decide(dataclasses.replace(on_its_way, remaining=gone)).action == Recompute()


def test_what_is_on_its_way_is_in_the_way_of_what_is_asked_for_next():
    state = make_state(throughput_bps=8000)
    flying = Transfer(2, "fine", 1500, 500, state.remaining[0])

    assert decide(dataclasses.replace(state, in_flight=(flying,))).finish_s["fine"] == 3.0


def test_in_order_controllers_do_one_thing_at_a_time():
    for spec in ("text", "fixed:fine", "paper"):
        controller = make_controller(spec, LEVELS)
        assert controller.decide(dataclasses.replace(make_state(), recomputing=True)) is None
        assert controller.review(make_state()) == ()
    assert decide(dataclasses.replace(make_state(), may_fetch=False)) is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"elapsed_s": -0.1}, "elapsed_s"),
        ({"elapsed_s": math.inf}, "elapsed_s"),
        ({"deadline_s": math.nan}, "deadline_s"),
        ({"throughput_bps": -1.0}, "throughput_bps"),
        ({"throughput_bps": math.nan}, "throughput_bps"),
        ({"rtt_s": -1.0}, "rtt_s"),
        ({"compute_free_s": math.inf}, "compute_free_s"),
    ],
    ids=str,
)
def test_states_that_cannot_be_are_refused(change, message):
    with pytest.raises(InvalidInputError, match=message):
        dataclasses.replace(make_state(), **change)


def test_chunks_out_of_order_are_refused_and_gaps_and_lost_encodings_are_not():
    first, second = make_state().remaining

    with pytest.raises(InvalidInputError, match="chunk 3 stands behind chunk 4"):
        LoadState(0.0, 1.0, (second, first), None)
    with pytest.raises(InvalidInputError, match="chunk 3 stands behind chunk 3"):
        LoadState(0.0, 1.0, (first, first), None)
    later = dataclasses.replace(second, index=9, sizes_bytes={"fine": 1})
    assert decide(LoadState(0.0, 4.0, (first, later), 1e9)).finish_s.keys() == {RECOMPUTE, "fine"}


@pytest.mark.parametrize(
    ("index", "num_tokens", "size_bytes", "recompute_s"),
    [(-1, 1, 1, 0.0), (0, 0, 1, 0.0), (0, 1, -1, 0.0), (0, 1, 1, -0.5), (0, 1, 1, math.nan)],
)
def test_options_that_cannot_be_are_refused(index, num_tokens, size_bytes, recompute_s):
    with pytest.raises(InvalidInputError):
        ChunkOptions(index, num_tokens, {"raw": size_bytes}, recompute_s)
