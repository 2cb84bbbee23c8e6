"""Sharing by numbers alone: whose turn it is, at which levels, and who is refused."""

import pytest

from cachegen.controllers import ChunkOptions
from cachegen.errors import AdmissionError, UnknownNameError
from cachegen.estimators import make_estimator
from cachegen.link_use import LinkKnowledge
from cachegen.sharing import HostLimits, HostState, Outlook, QueuedLoad, SharedHost, make_sharing

LADDER = ("fine", "medium", "coarse")
# with 8 Mbit/s: 4, 2 and 1 seconds a chunk
SIZES = {"fine": 4_000_000, "medium": 2_000_000, "coarse": 1_000_000}
BPS = 8e6


def outlook(chunks=1, recompute_s=50.0, after_s=0.0):
    options = tuple(ChunkOptions(index, 64, SIZES, recompute_s) for index in range(chunks))
    return Outlook(options, LADDER, 0.0, after_s)


def queued(number, deadline_s, bps=BPS, **fields):
    return QueuedLoad(number, deadline_s, 0, bps, outlook(**fields))


def arrange(*loads, name="deadline", flying_bytes=0):
    return make_sharing(name).arrange(loads, HostState(0.0, 0.0, flying_bytes, 0.0))


def numbers(turns):
    return [turn.number for turn in turns]


def test_an_unknown_sharing_is_refused_with_those_there_are():
    with pytest.raises(UnknownNameError, match="no sharing 'lottery'; there are equal, deadline"):
        make_sharing("lottery")


def test_the_earliest_deadline_comes_first_and_the_rest_count_its_bytes():
    turns = arrange(queued(0, 40.0), queued(1, 20.0), queued(2, 30.0))

    assert numbers(turns) == [1, 2, 0]
    assert [turn.ahead_bytes for turn in turns] == [0, 4_000_000, 8_000_000]
    assert [turn.finish_s for turn in turns] == [4.0, 8.0, 12.0]
    assert not any(turn.late for turn in turns)


def test_equal_sharing_has_the_order_of_coming_and_nobody_ahead():
    turns = arrange(queued(0, 40.0), queued(1, 20.0), name="equal")

    assert numbers(turns) == [0, 1]
    assert [turn.ahead_bytes for turn in turns] == [0, 0]


def test_what_is_lost_stands_behind_what_is_not():
    lost, held = queued(0, 0.5), queued(1, 3.0)

    assert numbers(arrange(lost, held)) == [1, 0]
    assert [turn.late for turn in arrange(lost, held)] == [False, True]


def test_one_large_load_is_set_back_for_many_small_ones():
    """In the order of deadlines the large one would make all of the others late."""
    large = queued(0, 8.0, chunks=8)
    small = [queued(number, 8.5 + number, chunks=2) for number in range(1, 4)]
    turns = arrange(large, *small)

    assert numbers(turns) == [1, 2, 3, 0]
    assert [turn.late for turn in turns] == [False, False, False, True]


def test_levels_get_coarser_for_all_the_more_loads_there_are():
    finest = [arrange(*(queued(number, 12.0) for number in range(count)))[0].finest for count in (1, 2, 4, 8)]
    assert finest == [0, 0, 1, 2]


def test_recomputation_ahead_keeps_the_lane_for_those_behind():
    # a link next to nothing: everything is recomputed
    turns = arrange(*(queued(number, 40.0 + number, bps=1.0, recompute_s=3.0, after_s=0.5) for number in range(3)))

    assert [turn.compute_free_s for turn in turns] == [0.0, 3.5, 7.0]
    assert [turn.finish_s for turn in turns] == [3.0, 6.5, 10.0]


def test_nothing_is_planned_over_a_link_that_nothing_is_known_of():
    turns = arrange(queued(0, 2.0, bps=None), queued(1, 1.0, bps=None))

    assert numbers(turns) == [1, 0]
    assert [turn.finish_s for turn in turns] == [None, None]
    assert not any(turn.late for turn in turns)


def join(host, deadline_s, arrival_s=0.0, bps=BPS, **fields):
    known = LinkKnowledge() if bps is None else LinkKnowledge(bps, 0.02)
    return host.join(lambda: outlook(**fields), make_estimator("two-speed"), known, arrival_s, deadline_s)


@pytest.mark.parametrize(("name", "finish"), [("equal", r"6\.\d+"), ("deadline", r"4\.\d+")])
def test_a_load_that_cannot_hold_its_deadline_is_refused_at_once_by_figures(name, finish):
    host = SharedHost(make_sharing(name))
    join(host, 1.5, arrival_s=5.0).admit(0.1)
    # three chunks at the coarsest level: with half of the link, or behind the first load's one
    with pytest.raises(AdmissionError, match=rf"in place {finish} s after .* arrival; its deadline is at 1\.60 s"):
        join(host, 1.6, arrival_s=5.0, chunks=3).admit(0.1)


def test_a_load_that_would_cost_another_its_deadline_is_refused():
    host = SharedHost(make_sharing("deadline"))
    join(host, 2.5, chunks=2).admit(0.0)
    with pytest.raises(AdmissionError, match=r"in place 1\.\d+ s .* 1 load of those admitted before would then miss"):
        join(host, 1.5, chunks=1).admit(0.0)


def test_a_link_that_nothing_is_known_of_refuses_nobody():
    host = SharedHost(make_sharing("deadline"))
    join(host, 0.1, bps=None).admit(0.0)


def test_the_lane_goes_to_the_most_urgent_of_those_that_ask():
    host = SharedHost(make_sharing("deadline"))
    late, early = join(host, 90.0), join(host, 60.0)
    late.ask_lane()
    early.ask_lane()

    assert not late.may_begin(0.0)
    assert early.may_begin(0.0)
    early.begin(1.0, 0.0)
    assert not late.may_begin(0.5)
    early.end()
    assert late.may_begin(1.0)


def test_the_lane_of_equal_sharing_goes_round_in_the_order_of_asking():
    host = SharedHost(make_sharing("equal"))
    late, early = join(host, 90.0), join(host, 60.0)
    late.ask_lane()
    early.ask_lane()

    assert late.may_begin(0.0)
    assert not early.may_begin(0.0)
    assert early.slowdown() == 2


def test_a_fetch_is_the_most_urgent_loads_that_wants_one():
    host = SharedHost(make_sharing("deadline"))
    late, early = join(host, 90.0), join(host, 60.0)

    assert not late.may_fetch(0.0, can=True)
    assert early.may_fetch(0.0, can=True)
    early.declined()
    assert late.may_fetch(0.0, can=True)
    late.request(0, 1_000_000, 0.0)
    # the link will not run dry for a second
    assert not early.may_fetch(0.0, can=True)
    assert early.flying_bytes() == 1_000_000


def test_a_load_that_leaves_takes_all_that_it_held_with_it():
    host = SharedHost(make_sharing("deadline"))
    gone, stays = join(host, 60.0), join(host, 90.0)
    gone.request(0, 1_000_000, 0.0)
    gone.begin(1.0, 0.0)
    gone.leave()
    gone.leave()

    assert host.flying_bytes() == 0
    assert stays.may_begin(0.0)
    assert stays.may_fetch(0.0, can=True)


def test_limits_hold_over_all_loads():
    host = SharedHost(make_sharing("equal"), HostLimits(in_flight=2, undecoded=1))
    first, second = join(host, 60.0), join(host, 60.0)
    first.request(0, 1000, 0.0)
    assert second.may_fetch(0.0, can=True)
    first.request(1, 1000, 0.0)
    assert not second.may_fetch(0.0, can=True)
    first.piece(0, 1000, 0.5)
    first.landed(0, 0.5)
    assert not second.may_fetch(0.5, can=True), "an object waits for its decode"
    first.decoded()
    assert second.may_fetch(0.5, can=True)
