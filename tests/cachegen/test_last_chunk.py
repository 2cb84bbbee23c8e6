"""What becomes of an object that was asked for before the index, once a controller decides on its chunk."""

from dataclasses import replace

import pytest

from cachegen.controllers import ChunkOptions, Decision, LoadState, Recompute, Stream, Transfer, make_controller
from cachegen.controllers.plan import ConstantRate, make_plan
from cachegen.estimators import make_estimator
from cachegen.last_chunk import EarlyObject, LastChunk
from cachegen.link_use import LinkKnowledge
from cachegen.load_commands import Fetch
from cachegen.load_session import LoadSession

LADDER = ["a", "b", "c", "d", "e"]
SIZES = {name: 5000 - 1000 * place for place, name in enumerate(LADDER)}


def make_chunks(count=3, recompute_s=5.0, sizes_bytes=SIZES):
    return [ChunkOptions(index, 64, sizes_bytes, recompute_s) for index in range(count)]


def settle(choice, early, sizes_bytes=SIZES, index=2, planned_finish_s=None, rtt_s=0.0):
    last = LastChunk(2, LADDER, EarlyObject(early, 0.01))
    # a thousand bytes, a level, take .1 s
    state = LoadState(0.1, 4.0, tuple(make_chunks(sizes_bytes=sizes_bytes)), throughput_bps=80_000.0, rtt_s=rtt_s)
    decision, taken = last.settle(Decision(index, choice, {}, "why", planned_finish_s), state)
    return str(decision.action), taken is not None, last.choice


@pytest.mark.parametrize(("rtt_s", "as_good"), [(0.0, "cde"), (0.049, "cde"), (0.051, "bcde"), (0.101, "abcde")])
def test_what_is_finer_is_as_good_where_its_bytes_cost_little_and_so_are_two_levels_coarser(rtt_s, as_good):
    for early in LADDER:
        taken = early in as_good
        assert settle(Stream("c"), early, rtt_s=rtt_s) == (early if taken else "c", taken, "c")


@pytest.mark.parametrize(("planned_finish_s", "taken"), [(3.89, True), (3.91, False), (4.5, False)])
def test_what_is_finer_does_not_cost_the_deadline(planned_finish_s, taken):
    for early, is_taken in (("b", taken), ("c", True), ("d", True)):
        found = settle(Stream("c"), early, planned_finish_s=planned_finish_s, rtt_s=1.0)
        assert found == (early if is_taken else "c", is_taken, "c")


def test_nothing_finer_is_as_good_on_a_link_of_unknown_rate():
    last = LastChunk(2, LADDER, EarlyObject("b", 0.01))
    state = LoadState(0.1, 4.0, tuple(make_chunks()), throughput_bps=None, rtt_s=1.0)

    assert last.settle(Decision(2, Stream("c"), {}, "why"), state)[1] is None


def test_three_levels_coarser_are_not():
    assert settle(Stream("b"), "e", rtt_s=1.0) == ("b", False, "b")


def test_what_the_store_does_not_have_is_not_taken_over():
    stored = {name: size for name, size in SIZES.items() if name != "d"}
    assert settle(Stream("c"), "d", stored) == ("c", False, "c")


def test_a_recomputation_stands():
    assert settle(Recompute(), "c") == ("recompute", False, None)


def test_another_chunks_decision_is_left_alone():
    assert settle(Stream("c"), "c", index=1) == ("c", False, None)


def test_a_second_decision_on_the_chunk_is_left_alone():
    last = LastChunk(2, LADDER, EarlyObject("b", 0.01))
    state = LoadState(0.1, 4.0, tuple(make_chunks()), throughput_bps=80_000.0)
    last.settle(Decision(2, Stream("b"), {}, "why"), state)

    decision, taken = last.settle(Decision(2, Stream("c"), {}, "why"), state)

    assert (decision.action, taken, last.choice) == (Stream("c"), None, "b")


EARLY, UNKNOWN = EarlyObject("c", 0.01), LinkKnowledge(None, 0.05)


def make_session(spec="fixed:c", early=EARLY, known=UNKNOWN):
    events = []
    controller = make_controller(spec, LADDER)
    session = LoadSession(
        make_chunks(),
        controller,
        make_estimator(controller.estimator),
        4.0,
        lambda event, **fields: events.append((event, fields)),
        known=known,
        early=early,
    )
    return session, events


def test_the_session_goes_on_with_it_and_counts_from_when_it_was_asked_for():
    session, events = make_session()

    assert session.commands(0.06)[0] == Fetch(2, "c", 3000, early=True)
    session.first_byte(2, 0.06)
    for at_s in (0.06, 0.07, 0.08):
        session.received(2, 1000, at_s)
    session.fetched(2, 0.08)

    [fetched] = [fields for event, fields in events if event == "fetch"]
    assert (fetched["started_s"], fetched["first_byte_s"], fetched["bytes"]) == (0.01, 0.06, 3000)
    # the round trip is that of the object, not that from the index to its first byte
    assert session.link.rtt_s == pytest.approx(0.05)
    assert session.link.last_chunk == "c"


@pytest.mark.parametrize(("rtt_s", "taken"), [(0.3, False), (0.5, True)])
def test_a_finer_one_is_gone_on_with_where_the_link_brings_what_it_has_more_in_two_round_trips(rtt_s, taken):
    # a thousand bytes, or .8 s
    session, _ = make_session("meet", EarlyObject("d", 0.01), LinkKnowledge(10_000.0, rtt_s))

    fetches = [command for command in session.commands(rtt_s + 0.01) if isinstance(command, Fetch)]

    assert session.link.last_chunk == "e"
    assert (fetches[0].encoding_name, fetches[0].early) == (("d", True) if taken else ("e", False))


def test_an_object_that_waited_as_long_as_the_index_is_no_silent_store():
    session, events = make_session("meet", EarlyObject("e", 0.01), LinkKnowledge(1e6, 0.05))

    # the deadline has passed, and more than the load's patience since the object was asked for
    assert session.commands(8.0)[0].early
    for at_s in (8.02, 8.04, 8.06):
        session.commands(at_s)

    assert "store_given_up" not in [event for event, _ in events]
    assert session._seat.link.throughput_bps == 1e6


def test_what_arrived_before_the_index_counts_at_the_rate_at_which_it_came():
    session, events = make_session(early=EarlyObject("c", 0.01, begun=True))

    session.commands(8.0)
    session.first_byte(2, 0.06)
    for at_s in (0.06, 0.07, 0.08):
        session.received(2, 1000, at_s)
    session.fetched(2, 0.08)

    assert session.link.throughput_bps == pytest.approx(8 * 3000 / 0.02)
    # others are on their way, and have been for a moment only
    session.commands(8.5)
    assert "store_given_up" not in [event for event, _ in events]
    [fetched] = [fields for event, fields in events if event == "fetch"]
    assert (fetched["started_s"], fetched["ended_s"]) == (0.01, 0.08)


def test_the_front_follows_what_is_on_its_way():
    session, _ = make_session()

    assert [command.index for command in session.commands(0.06)] == [2, 0, 1]


@pytest.mark.parametrize(("spec", "early"), [("fixed:a", "c"), ("paper", "c"), ("text", "c"), ("fixed:c", None)])
def test_what_is_not_wanted_is_not_taken_over(spec, early):
    session, events = make_session(spec, None if early is None else EARLY)

    assert not any(command.early for command in session.commands(0.06) if isinstance(command, Fetch))
    if early is not None:
        session.drop_early(700, 0.07)
        [given_up] = [fields for event, fields in events if event == "fetch_cancelled"]
        assert (given_up["chunk"], given_up["encoding"], given_up["received_bytes"]) == (2, "c", 700)
        assert session.wasted_bytes == 700


def test_one_that_failed_before_the_index_is_said_and_counted():
    session, events = make_session(early=None)

    session.early_failed("c", "no such object", 300)

    assert events == [("fetch_failed", {"chunk": 2, "encoding": "c", "error": "no such object", "received_bytes": 300})]
    assert session.wasted_bytes == 300


def test_an_object_asked_for_early_fails_like_any_other():
    session, _ = make_session()
    session.commands(0.06)

    session.fetch_failed(2, "no such object", 0.07, gone=True)
    commands = session.commands(0.08)

    assert not any(isinstance(command, Fetch) and command.index == 2 for command in commands)


@pytest.mark.parametrize("spec", ["meet", "meet:0"])
def test_meet_asks_for_the_medium_level_on_an_unknown_link_and_then_for_what_it_chose(spec):
    controller = make_controller(spec, LADDER)

    assert controller.before_index(None) == "c"
    assert controller.before_index(LinkKnowledge(None, 0.05)) == "c"
    assert controller.before_index(LinkKnowledge(1e6, 0.05, "e")) == "e"
    assert controller.before_index(LinkKnowledge(1e6, 0.05)) is None
    assert controller.before_index(LinkKnowledge(1e6, 0.05, "of-another-ladder")) is None


def test_rules_that_begin_with_the_first_chunk_ask_for_nothing():
    assert make_controller("paper", LADDER).before_index(None) is None
    assert make_controller("text", LADDER).before_index(None) is None


@pytest.mark.parametrize("rtt_s", [0.0, 0.05, 0.5])
def test_a_round_trip_buys_no_finer_level(rtt_s):
    state = LoadState(0.0, 4.0, tuple(make_chunks(recompute_s=60.0)), throughput_bps=240_000.0)
    at_once = make_controller("meet", LADDER).decide(replace(state, rtt_s=rtt_s))

    assert at_once.action == make_controller("meet", LADDER).decide(state).action


def test_what_is_on_its_way_buys_no_finer_level():
    [flying, chunk] = make_chunks(2, recompute_s=60.0)
    state = LoadState(0.0, 40.0, (chunk,), throughput_bps=80_000.0)
    # ten seconds' worth
    behind = replace(state, in_flight=(Transfer(0, "a", 100_000, 0, flying),))

    # 40 % more of those would have room for any level
    assert make_controller("meet", LADDER).decide(behind).action == Stream("e")


def test_an_early_object_hides_the_round_trip_of_the_plan():
    state = LoadState(0.0, 40.0, tuple(make_chunks(recompute_s=60.0)), throughput_bps=80_000.0, rtt_s=0.5)
    plans = [make_plan(each, LADDER, ConstantRate(80_000.0), 40.0) for each in (state, replace(state, early="c"))]

    assert plans[0].finish_s - plans[1].finish_s == pytest.approx(0.5)
