"""What a load learns of a link: rates over all that flows, no round trip taken for a stall, no stall overlooked."""

import pytest

from cachegen.estimators import make_estimator
from cachegen.link_use import LinkKnowledge, LinkUse


class Recorder:
    """An estimator that keeps what it is told."""

    bps = None

    def __init__(self):
        self.pieces, self.transfers = [], []

    def expect(self, bps):
        pass

    def add_piece(self, size_bytes, seconds):
        self.pieces.append((size_bytes, pytest.approx(seconds)))

    def add_transfer(self, size_bytes, seconds):
        self.transfers.append((size_bytes, pytest.approx(seconds)))


def test_a_lone_objects_throughput_includes_its_round_trip():
    told = Recorder()
    link = LinkUse(told, LinkKnowledge(rtt_s=0.0))
    link.request(0, 1.0)
    link.answer(0, 1.5)
    link.piece(1000, 2.0)
    link.whole(0, 2.0)

    assert told.transfers == [(1000, 1.0)]
    assert told.pieces == [(1000, 0.5)]
    assert link.rtt_s == 0.5


def test_objects_that_share_the_link_see_the_links_throughput_and_not_their_share():
    told = Recorder()
    link = LinkUse(told, LinkKnowledge(rtt_s=0.0))
    for index in (0, 1):
        link.request(index, 0.0)
        link.answer(index, 0.0)
    for now_s in (1.0, 2.0):
        link.piece(500, now_s)
        link.piece(500, now_s)
    link.whole(0, 2.0)
    link.whole(1, 2.001)

    assert told.transfers == [(2000, 2.0), (2000, 2.001)]


def test_time_without_requests_is_not_counted():
    told = Recorder()
    link = LinkUse(told, LinkKnowledge(rtt_s=0.1))
    for start_s in (0.0, 100.0):
        link.request(0, start_s)
        link.silence(start_s + 0.1)
        link.answer(0, start_s + 0.1)
        link.piece(1000, start_s + 0.2)
        link.whole(0, start_s + 0.2)
        link.silence(start_s + 50.0)

    assert told.pieces == [(1000, 0.1), (1000, 0.1)]


def test_a_round_trip_behind_a_link_that_ran_dry_is_no_stall():
    told = Recorder()
    link = LinkUse(told, LinkKnowledge(rtt_s=1.0))
    link.request(0, 0.0)
    link.answer(0, 1.0)
    link.request(1, 1.1)
    link.piece(1000, 1.5)
    link.whole(0, 1.5)
    for tenth in range(16, 21):
        link.silence(tenth / 10)
    link.answer(1, 2.1)
    link.piece(500, 2.2)

    assert told.pieces == [(1000, 0.5), (500, 0.1)]


def test_silence_in_the_middle_of_an_object_counts_as_nothing_arriving():
    told = Recorder()
    link = LinkUse(told, LinkKnowledge(rtt_s=0.05))
    link.request(0, 0.0)
    link.answer(0, 0.05)
    link.piece(1000, 0.1)
    link.silence(0.15)
    assert len(told.pieces) == 1
    link.silence(3.1)

    assert told.pieces == [(1000, 0.05), (0, 3.0)]


def test_an_answer_that_is_overdue_counts_as_nothing_arriving():
    told = Recorder()
    link = LinkUse(told, LinkKnowledge(rtt_s=0.05))
    link.request(0, 0.0)
    link.silence(0.15)
    assert not told.pieces
    link.silence(5.1)

    assert told.pieces == [(0, 5.0)]


def test_objects_given_up_are_waited_for_no_longer():
    told = Recorder()
    link = LinkUse(told, LinkKnowledge(rtt_s=0.0))
    link.request(0, 0.0)
    link.answer(0, 0.0)
    link.ended(0)
    link.silence(100.0)

    assert not told.pieces


def test_the_next_request_is_due_when_the_rest_arrives_within_a_round_trip():
    link = LinkUse(make_estimator("two-speed"), LinkKnowledge(rtt_s=1.0))
    assert link.bytes_per_s is None
    link.request(0, 0.0)
    link.answer(0, 1.0)
    for tenth in range(11, 16):
        link.piece(100, tenth / 10)

    assert link.bytes_per_s == pytest.approx(1000)
    assert link.runs_dry(900, 1.5)
    assert not link.runs_dry(1500, 1.5)
    assert link.runs_dry(0, 1.5)


def test_what_was_just_asked_for_has_not_left_the_store_yet():
    link = LinkUse(make_estimator("two-speed"), LinkKnowledge(8000.0, rtt_s=1.0))
    link.request(0, 5.0)
    assert not link.runs_dry(500, 5.0)
    assert not link.runs_dry(500, 5.4)
    assert link.runs_dry(500, 5.5)
    link.ended(0)
    link.request(1, 9.0)
    assert not link.runs_dry(500, 9.0)


def test_the_shortest_round_trip_is_kept():
    link = LinkUse(make_estimator("last-chunk"), LinkKnowledge(rtt_s=0.0))
    for index, waited_s in enumerate((0.3, 0.1, 0.2)):
        link.request(index, 10.0 * index)
        link.answer(index, 10.0 * index + waited_s)
        link.ended(index)

    assert link.rtt_s == pytest.approx(0.1)
