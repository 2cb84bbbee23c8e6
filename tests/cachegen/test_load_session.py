"""The course of a load in any environment: whatever is late, lost or damaged, each chunk comes once."""

import random
from contextlib import nullcontext, suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cachegen.controllers import ChunkOptions, Decision, InOrderController, Recompute, Stream, make_controller
from cachegen.controllers.plan import ConstantRate
from cachegen.errors import InvalidInputError, StoreError
from cachegen.estimators import make_estimator
from cachegen.load_commands import CancelFetch, Fetch, LoadLimits, Prefill
from cachegen.load_session import LoadSession
from cachegen.recompute_cost import IMPOSSIBLE_S

LADDER = ["fine", "medium", "coarse"]
SPECS = ["text", "fixed:fine", "fixed:coarse", "paper", "meet", "oracle"]


def make_chunks(count, recompute_s=0.3):
    return [
        ChunkOptions(index, 16, {"fine": 4000, "medium": 2000, "coarse": 1000}, recompute_s) for index in range(count)
    ]


class Environment:
    """Carries out what a session says, with the delays and mishaps of a seed, and checks that it may say so."""

    def __init__(self, session, chunks, limits, mishaps, seed):
        self.session, self.chunks, self.limits, self.mishaps = session, chunks, limits, mishaps
        self.dice, self.now_s = random.Random(seed), 0.0
        self.flying, self.undecoded, self.computing = {}, {}, None
        self.ready, self.gone, self.asked, self.cancelled = [], set(), 0, dict.fromkeys(range(len(chunks)), 0)
        self.received_bytes = self.useful_bytes = 0
        self.events = 0

    def run(self):
        while not self.session.done:
            self.events += 1
            assert self.events < 5000, "a load comes to its end"
            for command in self.session.commands(self.now_s):
                self.obey(command)
            self.now_s += self.dice.choice([0.001, 0.01, 0.05, 0.2])
            self.happen()

    def obey(self, command):
        match command:
            case Fetch(index, name, size_bytes):
                assert (index, name) not in self.gone, "what is gone is not asked for again"
                assert size_bytes == self.chunks[index].sizes_bytes[name]
                assert not ({index} & (self.flying.keys() | self.undecoded.keys() | set(self.ready)))
                assert len(self.undecoded) < self.limits.undecoded
                self.flying[index], self.asked = [name, size_bytes, 0], self.asked + 1
                assert len(self.flying) <= self.limits.in_flight
            case CancelFetch(index):
                del self.flying[index]
                self.cancelled[index] += 1
            case Prefill(index):
                assert self.computing is None
                assert set(range(index)) <= set(self.ready), "a recomputation stands on all chunks before it"
                assert not ({index} & (self.flying.keys() | self.undecoded.keys() | set(self.ready)))
                self.computing = index, self.now_s

    def happen(self):
        if self.computing is not None and self.dice.random() < 0.4:
            index, started_s = self.computing
            self.computing = None
            self.ready.append(index)
            self.session.recomputed(index, started_s, self.now_s)
        for index in list(self.flying):
            if self.dice.random() < 0.5:
                self.arrive(index)
        for index, size_bytes in list(self.undecoded.items()):
            if self.dice.random() < 0.5:
                self.decode(index, size_bytes)

    def arrive(self, index):
        name, size_bytes, received = self.flying[index]
        if self.dice.random() < self.mishaps:
            del self.flying[index]
            missing = self.dice.random() < 0.5
            if missing:
                self.gone.add((index, name))
            self.session.fetch_failed(index, "mishap", self.now_s, gone=missing)
            return
        if not received:
            self.session.first_byte(index, self.now_s)
        piece = min(size_bytes - received, self.dice.randint(1, size_bytes))
        self.received_bytes += piece
        self.flying[index][2] += piece
        self.session.received(index, piece, self.now_s)
        if received + piece == size_bytes:
            del self.flying[index]
            self.undecoded[index] = size_bytes
            self.session.fetched(index, self.now_s)

    def decode(self, index, size_bytes):
        del self.undecoded[index]
        if self.dice.random() < self.mishaps:
            self.gone.add((index, self.session.chunk_sources[index]))
            self.session.decode_failed(index, "mishap")
        else:
            self.ready.append(index)
            self.useful_bytes += size_bytes
            self.session.decoded(index, self.now_s, self.now_s)


def make_session(spec, chunks, limits=None, deadline_s=2.0, log=lambda *_, **__: None):
    controller = make_controller(spec, LADDER, ConstantRate(1e5))
    return LoadSession(chunks, controller, make_estimator(controller.estimator), deadline_s, log, limits)


@pytest.mark.parametrize("spec", SPECS)
@settings(deadline=None, max_examples=60)
@given(
    count=st.integers(1, 12),
    limits=st.builds(LoadLimits, st.integers(1, 8), st.integers(1, 3)),
    mishaps=st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0]),
    deadline_s=st.sampled_from([-1.0, 0.5, 3.0, 60.0]),
    recompute_s=st.sampled_from([0.0, 0.3, 5.0]),
    seed=st.integers(0, 2**32),
)
def test_every_load_ends_with_each_chunk_in_place_once(spec, count, limits, mishaps, deadline_s, recompute_s, seed):
    events = []
    chunks = make_chunks(count, recompute_s)
    session = make_session(spec, chunks, limits, deadline_s, lambda event, **fields: events.append((event, fields)))
    environment = Environment(session, chunks, limits, mishaps, seed)
    environment.run()

    assert sorted(environment.ready) == list(range(count))
    assert session.wasted_bytes + environment.useful_bytes == environment.received_bytes
    # two failures, two cancellations and each encoding once, for each chunk
    assert environment.asked <= count * (2 + 2 + len(LADDER))
    assert max(environment.cancelled.values()) <= 2
    sources = {fields["chunk"]: fields["action"] for event, fields in events if event == "decision"}
    assert session.chunk_sources == tuple(sources[index] for index in range(count))


@pytest.mark.parametrize("spec", SPECS)
@settings(deadline=None, max_examples=60)
@given(
    count=st.integers(1, 8),
    mishaps=st.sampled_from([0.0, 0.1, 0.5, 0.9]),
    deadline_s=st.sampled_from([-1.0, 0.5, 3.0]),
    seed=st.integers(0, 2**32),
)
def test_what_cannot_be_recomputed_arrives_or_fails(spec, count, mishaps, deadline_s, seed):
    limits, chunks = LoadLimits(), make_chunks(count, IMPOSSIBLE_S)
    environment = Environment(make_session(spec, chunks, limits, deadline_s), chunks, limits, mishaps, seed)
    with suppress(StoreError) if mishaps or spec == "text" else nullcontext():
        environment.run()
    assert "recompute" not in environment.session.chunk_sources


def test_an_object_that_breaks_off_is_asked_for_again_where_nothing_else_is_left():
    session = make_session("fixed:fine", make_chunks(1, IMPOSSIBLE_S))
    for now_s in (0.0, 1.0, 2.0):
        assert session.commands(now_s) == [Fetch(0, "fine", 4000)]
        session.fetch_failed(0, "reset", now_s, gone=False)  # later than the deadline, the last one
    session.commands(5.0)
    session.fetch_failed(0, "reset by peer", 5.0, gone=False)

    with pytest.raises(StoreError, match="chunk 0 is not to be had as fine and cannot be recomputed: reset by peer"):
        session.commands(6.0)


class Watcher:
    """Streams everything and notes what it was told of decoding."""

    encodings, estimator = ("fine",), "last-chunk"

    def __init__(self):
        self.decode_s = []

    def decide(self, state):
        self.decode_s.append(state.decode_s)
        return Decision(state.remaining[0].index, Stream("fine"), {}, "") if state.may_fetch else None

    def review(self, state):
        return ()


def test_controllers_know_how_much_is_still_to_be_decoded():
    chunks = [ChunkOptions(index, 16, {"fine": 4000}, 0.3, {"fine": 0.5}) for index in range(6)]
    watcher = Watcher()
    session = LoadSession(chunks, watcher, make_estimator("last-chunk"), 9.0, log=lambda *_, **__: None)
    assert [command.index for command in session.commands(0.0)] == [0, 1, 2]
    assert watcher.decode_s == [0.0, 0.5, 1.0, 1.5]  # on their way
    session.received(0, 4000, 0.1)
    session.fetched(0, 0.1)
    session.commands(0.2)
    assert watcher.decode_s[4] == 1.5  # arrived, not decoded
    before = list(watcher.decode_s)
    session.decoded(0, 0.2, 0.3)
    session.commands(0.4)
    assert watcher.decode_s[len(before)] == before[-1] - 0.5


def test_a_chunk_that_waits_to_be_recomputed_does_not_hold_up_the_one_it_waits_for():
    session = make_session("fixed:fine", make_chunks(3), LoadLimits(in_flight=4))
    assert session.commands(0.0)[:2] == [Fetch(0, "fine", 4000), Fetch(1, "fine", 4000)]

    session.fetch_failed(1, "not there", 0.1, gone=True)
    assert session.commands(0.1) == []
    session.fetch_failed(0, "not there", 0.2, gone=True)

    assert session.commands(0.2) == [Prefill(0)]
    session.recomputed(0, 0.2, 0.5)
    assert Prefill(1) in session.commands(0.5)


def test_a_store_that_lacks_the_finest_levels_is_asked_for_the_coarsest():
    session = make_session("paper", make_chunks(1, recompute_s=100.0))
    asked = []
    for _ in LADDER:
        [fetch] = session.commands(0.0)
        asked.append(fetch.encoding_name)
        session.fetch_failed(0, "not there", 0.0, gone=True)

    assert sorted(asked) == sorted(LADDER)
    assert session.commands(0.0) == [Prefill(0)]


def test_an_object_that_fails_is_asked_for_twice_and_not_at_once():
    session = make_session("fixed:fine", make_chunks(1))
    for now_s in (0.0, 0.1):
        assert session.commands(now_s) == [Fetch(0, "fine", 4000)]
        session.fetch_failed(0, "reset", now_s, gone=False)
        if now_s == 0.0:
            assert session.commands(0.05) == []

    assert session.commands(0.1) == [Prefill(0)]


def fail_everything(count, deadline_s):
    """Drive a load whose every request is refused; return when the store was given up, and the requests."""
    events, now_s, asked = [], 0.0, 0
    session = make_session(
        "fixed:fine", make_chunks(count, 0.0), None, deadline_s, lambda event, **_: events.append(event)
    )
    while not session.done:
        for command in session.commands(now_s):
            match command:
                case Fetch(index):
                    asked += 1
                    session.fetch_failed(index, "refused", now_s, gone=False)
                case Prefill(index):
                    session.recomputed(index, now_s, now_s)
        now_s += 0.05
    return events, now_s, asked


def test_a_dead_store_is_given_up_for_the_whole_load():
    few, many = fail_everything(20, 1e9), fail_everything(1200, 1e9)

    assert few[0].count("store_given_up") == 1
    # however many chunks there are
    assert few[2] == many[2] < 30


def test_a_dead_store_is_given_up_sooner_once_it_is_late():
    assert fail_everything(20, -1.0)[2] < fail_everything(20, 1e9)[2]


def test_objects_that_break_off_together_are_one_failure():
    session = make_session("fixed:fine", make_chunks(8), LoadLimits(in_flight=8))
    asked = session.commands(0.0)
    assert len(asked) > 2
    for fetch in asked:
        session.fetch_failed(fetch.index, "reset", 0.01, gone=False)

    assert [type(command) for command in session.commands(0.05)] == []
    assert any(isinstance(command, Fetch) for command in session.commands(0.12))


def test_of_the_encodings_that_the_controller_may_choose_one_has_to_be_stored():
    make_session("paper", [ChunkOptions(0, 16, {"coarse": 1}, 0.1)])  # others may have been evicted
    with pytest.raises(InvalidInputError, match="no chunk is stored as fine or medium or coarse"):
        make_session("paper", [ChunkOptions(0, 16, {"other": 1}, 0.1)])


def test_a_load_without_chunks_is_done():
    assert make_session("meet", []).done


class GivesUp(InOrderController):
    """Streams, and gives up whatever is in flight."""

    encodings = ("fine",)

    def choose(self, state, finish_s):
        return Stream("fine"), "always"

    def review(self, state):
        return tuple(transfer.index for transfer in state.in_flight)


def test_a_controller_that_gives_up_for_ever_is_stopped():
    session = LoadSession(make_chunks(1), GivesUp(), make_estimator("last-chunk"), 1.0, lambda *_, **__: None)
    said = [session.commands(0.1 * turn) for turn in range(10)]

    assert said[:4] == [
        [Fetch(0, "fine", 4000)],
        [CancelFetch(0), Fetch(0, "fine", 4000)],
        [CancelFetch(0), Fetch(0, "fine", 4000)],
        [],
    ]
    assert not any(said[4:])


def test_the_state_counts_chunks_that_wait_to_be_recomputed():
    states = []

    class Watching(InOrderController):
        """Streams the first chunk and recomputes the second."""

        encodings = ("fine",)

        def decide(self, state):
            states.append(state)
            return super().decide(state)

        def choose(self, state, finish_s):
            return (Stream("fine") if state.remaining[0].index == 0 else Recompute()), "as told"

    session = LoadSession(make_chunks(3), Watching(), make_estimator("last-chunk"), 1.0, lambda *_, **__: None)
    session.commands(0.0)

    assert [state.compute_free_s for state in states] == [0.0, 0.0, 0.3]
    assert [state.may_recompute for state in states] == [True, True, False]
