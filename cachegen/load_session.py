"""The course of one load, without any input or output: it is told what happened, and says what to do next.

The streaming loader carries its commands out on real sockets and a real model; a simulation does so on a virtual
clock. Both so run the very same decisions.
"""

from collections.abc import Sequence
from dataclasses import replace

from cachegen.chunk_progress import ChunkProgress, Place
from cachegen.controllers import ChunkOptions, Controller, Decision, LoadState, Recompute, Stream
from cachegen.errors import InvalidInputError, StoreError
from cachegen.estimators import ThroughputEstimator
from cachegen.last_chunk import EarlyObject, LastChunk
from cachegen.link_use import LinkKnowledge
from cachegen.load_commands import CancelFetch, Command, EventLog, Fetch, LoadLimits, Prefill
from cachegen.load_events import decision_fields, loaded_fields
from cachegen.patience import Patience
from cachegen.sharing import Outlook, SharedHost, make_sharing
from cachegen.store_health import StoreHealth

# A chunk that failed as often is recomputed, if it can be. An object that the store does not have is no failure: the
# answer is cheap, and another encoding may be there.
_MAX_FAILURES = 2
# A chunk given up as often is left to arrive: a link that rises and falls must not have it begun for ever.
_MAX_CANCELLATIONS = 2

# Objects asked for while nothing is known of the link.
_AT_FIRST = 3


class LoadSession:
    """One context's way into a cache.

    Parameters
    ----------
    chunks : sequence of ChunkOptions
        All chunks of the context, in order.
    controller : Controller
        Decides how each one comes.
    estimator : ThroughputEstimator
        Its notion of the link; new.
    deadline_s : float
        When the load should have ended, on the clock of all other times here: seconds since the request's arrival.
    log : EventLog
        Receives ``decision``, ``fetch``, ``fetch_cancelled``, ``fetch_failed``, ``store_given_up``, ``decode``,
        ``decode_failed``, ``recompute`` and ``loaded`` events.
    limits : LoadLimits, optional
        Default: those of the class.
    known : LinkKnowledge, optional
        Of the link, from loads before; default: nothing.
    host : SharedHost, optional
        Whose link and compute lane the load uses, together with others; default: its own. Where the link is one queue,
        the first load's estimator and knowledge are all loads'. Call :meth:`leave` at the end.
    arrival_s : float
        The request's arrival on the host's clock.
    after_s : float
        Seconds of computation once the context is in place, which other loads have to wait for.
    early : EarlyObject, optional
        What has been asked for before the index. If the first :meth:`commands` do not take it over (``Fetch.early``),
        it is to be given up with :meth:`drop_early`.

    Attributes
    ----------
    deadline_s : float
        As it was given.
    wasted_bytes : int
        Bytes that arrived for objects that were given up or damaged.

    Raises
    ------
    InvalidInputError
        No chunk is stored in any encoding that the controller may choose. (Single ones may be gone: evicted.)
    """

    def __init__(
        self,
        chunks: Sequence[ChunkOptions],
        controller: Controller,
        estimator: ThroughputEstimator,
        deadline_s: float,
        log: EventLog,
        limits: LoadLimits | None = None,
        known: LinkKnowledge | None = None,
        *,
        host: SharedHost | None = None,
        arrival_s: float = 0.0,
        after_s: float = 0.0,
        early: EarlyObject | None = None,
    ) -> None:
        stored = {name for chunk in chunks for name in chunk.sizes_bytes}
        if chunks and controller.encodings and not stored & set(controller.encodings):
            raise InvalidInputError(f"no chunk is stored as {' or '.join(controller.encodings)}")
        self._chunks = [ChunkProgress(options) for options in chunks]
        self._controller, self._log = controller, log
        self._last = LastChunk(len(chunks) - 1, controller.encodings, early)
        self.deadline_s, self._limits, self._after_s = deadline_s, limits or LoadLimits(), after_s
        host = host or SharedHost(make_sharing("equal"))
        self._seat = host.join(self._outlook, estimator, known or LinkKnowledge(), arrival_s, deadline_s)
        self._patience = Patience(self._limits.patience_s)
        self._store = StoreHealth()
        self.wasted_bytes = 0

    @property
    def done(self) -> bool:
        """Whether all chunks are in place."""
        return all(chunk.place is Place.READY for chunk in self._chunks)

    @property
    def queued(self) -> bool:
        """Whether the load waits because other loads go first."""
        return self._seat.queued

    @property
    def chunk_sources(self) -> tuple[str, ...]:
        """How each chunk came: an encoding's name or ``recompute``."""
        return tuple(chunk.source for chunk in self._chunks)

    @property
    def link(self) -> LinkKnowledge:
        """What this load has learnt of the link."""
        return replace(self._seat.link.knowledge, last_chunk=self._last.choice)

    def admit(self, now_s: float) -> None:
        """Ask, before anything else, whether the load may begin.

        Raises
        ------
        AdmissionError
            Its deadline could not be held, or another's could not with it.
        """
        self._seat.admit(now_s)

    def commands(self, now_s: float) -> list[Command]:
        """Return what to do now; ask again after every event, and a few times a second without any.

        Raises
        ------
        StoreError
            A chunk that cannot be recomputed is not to be had from the store either.
        """
        self._refuse_loss()
        self._seat.silence(now_s)
        commands: list[Command] = [CancelFetch(index) for index in self._give_up(now_s)]
        while self._in(Place.UNDECIDED):
            state = self._state(now_s)
            if not (state.may_fetch or state.may_recompute):
                break
            decision = self._controller.decide(state)
            if state.may_fetch and not (decision is not None and isinstance(decision.action, Stream)):
                self._seat.declined()
            if decision is None:
                break
            commands += self._carry_out(decision, state, now_s)
        return commands + self._begin_recompute(now_s)

    def drop_early(self, received_bytes: int, now_s: float) -> None:
        """Take note that what was asked for before the index is given up."""
        early = self._last.give_up()
        self._note_cancelled(len(self._chunks) - 1, early.encoding_name, received_bytes, early.asked_s, now_s)

    def early_failed(self, encoding: str, error: str, received_bytes: int) -> None:
        """Take note that what was asked for before the index had failed by the time that this was there."""
        self.wasted_bytes += received_bytes
        self._log(
            "fetch_failed", chunk=len(self._chunks) - 1, encoding=encoding, error=error, received_bytes=received_bytes
        )

    def begin_after(self, now_s: float) -> bool:
        """Begin what follows the load on the compute lane, if it is this load's turn; ask again if not."""
        assert self.done, "the context is in place"
        self._seat.ask_lane()
        if not self._seat.may_begin(now_s):
            return False
        self._seat.begin(self._after_s, now_s)
        return True

    def leave(self) -> None:
        """Give the place at the host up; no computation of this load may still run."""
        self._seat.leave()

    def first_byte(self, index: int, now_s: float) -> None:
        """Take note that the answer to a fetch begins to arrive."""
        self._chunks[index].first_byte_s = now_s
        self._seat.answer(index, now_s)

    def received(self, index: int, num_bytes: int, now_s: float) -> None:
        """Take note of bytes of an object in flight."""
        self._chunks[index].received_bytes += num_bytes
        self._patience.heard(now_s, waiting=True, num_bytes=num_bytes)
        self._seat.piece(index, num_bytes, now_s)

    def fetched(self, index: int, now_s: float) -> None:
        """Take note that an object is whole."""
        chunk = self._chunks[index]
        chunk.place = Place.UNDECODED
        self._patience.heard(now_s, bool(self._in(Place.IN_FLIGHT)))
        self._store.answered()
        self._seat.landed(index, now_s)
        self._log(
            "fetch",
            chunk=index,
            encoding=chunk.source,
            bytes=chunk.received_bytes,
            started_s=chunk.started_s,
            first_byte_s=chunk.first_byte_s,
            ended_s=now_s,
        )

    def fetch_failed(self, index: int, error: str, now_s: float, *, gone: bool) -> None:
        """Take note that an object does not come; ``gone``: nor would it the next time."""
        chunk = self._chunks[index]
        chunk.error = error
        self._log("fetch_failed", chunk=index, encoding=chunk.source, error=error, received_bytes=chunk.received_bytes)
        self._seat.dropped(index)
        if gone:  # so it said
            self._store.answered()
            self._patience.heard(now_s, len(self._in(Place.IN_FLIGHT)) > 1)
        else:
            chunk.failures += 1
            if not self._store.given_up:
                self._store.failed(chunk.started_s, now_s, self.deadline_s)
                if self._store.given_up:
                    self._log("store_given_up", reason="it failed too often in a row", chunks=[index])
        self._refuse(chunk, gone=gone)

    def decoded(self, index: int, started_s: float, now_s: float) -> None:
        """Take note that a chunk is in place."""
        chunk = self._chunks[index]
        self._place_ready(chunk)
        self._seat.decoded()
        self._log("decode", chunk=index, encoding=chunk.source, started_s=started_s, ended_s=now_s)
        self._log_end(now_s)

    def decode_failed(self, index: int, error: str) -> None:
        """Take note that an object is damaged or foreign."""
        chunk = self._chunks[index]
        chunk.error = error
        self._log("decode_failed", chunk=index, encoding=chunk.source, error=error)
        chunk.failures += 1
        self._seat.decoded()
        self._refuse(chunk, gone=True)

    def recomputed(self, index: int, started_s: float, now_s: float) -> None:
        """Take note that a chunk's prefill has ended."""
        chunk = self._chunks[index]
        self._seat.end()
        self._place_ready(chunk)
        self._log("recompute", chunk=index, started_s=started_s, ended_s=now_s, predicted_s=chunk.options.recompute_s)
        self._log_end(now_s)

    def _refuse_loss(self) -> None:
        """End the load where a chunk is left without any way: its tokens would give another KV, unnoticed."""
        for chunk in self._in(Place.UNDECIDED):
            if not (self._ways(self._open_options(chunk)) or chunk.options.recomputable):
                raise self._loss(chunk)

    def _loss(self, chunk: ChunkProgress) -> StoreError:
        names = " or ".join(self._controller.encodings) or "no encoding"
        return StoreError(
            f"chunk {chunk.options.index} is not to be had as {names} and cannot be recomputed"
            + (f": {chunk.error}" if chunk.error else "")
        )

    def _in(self, *places: Place) -> list[ChunkProgress]:
        return [chunk for chunk in self._chunks if chunk.place in places]

    def _place_ready(self, chunk: ChunkProgress) -> None:
        chunk.place = Place.READY
        if self.done and self._after_s:
            # before another load takes the lane
            self._seat.ask_lane()

    def _log_end(self, now_s: float) -> None:
        if self.done:
            self._log("loaded", **loaded_fields(self._chunks, self.deadline_s, self.wasted_bytes, now_s))

    def _outlook(self) -> Outlook:
        return Outlook(
            remaining=tuple(map(self._open_options, self._in(Place.UNDECIDED))),
            encodings=self._controller.encodings,
            compute_s=sum(chunk.options.recompute_s for chunk in self._in(Place.TO_RECOMPUTE)),
            after_s=self._after_s,
        )

    def _state(self, now_s: float) -> LoadState:
        seat, turn = self._seat, self._seat.turn(now_s)
        slowdown = seat.slowdown()
        remaining = tuple(
            self._offer(self._open_options(chunk), turn.finest, slowdown) for chunk in self._in(Place.UNDECIDED)
        )
        waiting, computing = self._in(Place.TO_RECOMPUTE), self._in(Place.RECOMPUTING)
        free_s = max(now_s, seat.since_arrival_s(turn.compute_free_s))
        computed_s = self._computed_s(free_s, slowdown, now_s) if waiting or computing else now_s
        # one that waits for a chunk before it, which was refused or given up meanwhile, must not hold that one up
        recomputing = bool(computing) or any(chunk.options.index < remaining[0].index for chunk in waiting if remaining)
        return LoadState(
            elapsed_s=now_s,
            deadline_s=self.deadline_s,
            remaining=remaining,
            throughput_bps=seat.link.throughput_bps,
            in_flight=tuple(chunk.transfer(self._open_options(chunk)) for chunk in self._in(Place.IN_FLIGHT)),
            rtt_s=seat.link.rtt_s,
            compute_free_s=max(free_s, computed_s),
            may_fetch=self._may_fetch(now_s),
            may_recompute=not recomputing and seat.may_decide_to_compute(now_s),
            recomputing=recomputing,
            computed_s=computed_s,
            flying_bytes=seat.flying_bytes(),
            ahead_bytes=turn.ahead_bytes,
            decode_s=sum(chunk.decode_s for chunk in self._in(Place.IN_FLIGHT, Place.UNDECODED)),
            early=self._last.on_its_way(remaining),
        )

    def _open_options(self, chunk: ChunkProgress) -> ChunkOptions:
        return replace(chunk.options, sizes_bytes={}) if self._store.given_up else chunk.options

    def _computed_s(self, free_s: float, slowdown: int, now_s: float) -> float:
        """When the recomputations that are decided should have ended."""
        running_s = self._seat.running_until_s(now_s)
        waiting_s = sum(chunk.options.recompute_s for chunk in self._in(Place.TO_RECOMPUTE))
        return (free_s if running_s is None else running_s) + slowdown * waiting_s

    def _offer(self, options: ChunkOptions, finest: int, slowdown: int) -> ChunkOptions:
        """A chunk with what the load may choose, for the sake of those behind it, at what it costs beside others."""
        barred = self._controller.encodings[:finest][: len(self._controller.encodings) - 1]
        sizes_bytes = {name: size for name, size in options.sizes_bytes.items() if name not in barred}
        if slowdown == 1 and len(sizes_bytes) in (0, len(options.sizes_bytes)):
            return options
        return replace(options, sizes_bytes=sizes_bytes or options.sizes_bytes).slowed(slowdown)

    def _may_fetch(self, now_s: float) -> bool:
        flying = len(self._in(Place.IN_FLIGHT))
        # objects that share a link end at once, and so their decoding cannot hide: no more of them than it takes to see
        # what the link does
        unknown = self._seat.link.bytes_per_s is None
        most = min(_AT_FIRST, self._limits.in_flight) if unknown else self._limits.in_flight
        can = (
            bool(self._in(Place.UNDECIDED))
            and self._store.may_ask(now_s)
            and flying < most
            and len(self._in(Place.UNDECODED)) < self._limits.undecoded
        )
        # not sooner than the link would run dry without it: the later a decision, the more it knows
        return self._seat.may_fetch(now_s, can=can)

    def _give_store_up(self, now_s: float) -> bool:
        """Go on without the store if it is time to: what it has not brought can be recomputed alone."""
        open_ = [chunk for chunk in self._in(Place.UNDECIDED, Place.IN_FLIGHT) if chunk.options.sizes_bytes]
        if not open_:
            return False
        missing_bytes = sum(
            chunk.transfer(chunk.options).missing_bytes
            if chunk.place is Place.IN_FLIGHT
            else self._least_bytes(chunk.options)
            for chunk in open_
        )
        left = [chunk for chunk in self._chunks if chunk.place not in {Place.READY, Place.UNDECODED}]
        recompute_s = self._seat.slowdown() * sum(chunk.options.recompute_s for chunk in left)
        reason = self._patience.verdict(now_s, self.deadline_s, recompute_s, missing_bytes)
        if not reason:
            return False
        self._log("store_given_up", reason=reason, chunks=[chunk.options.index for chunk in open_])
        for chunk in open_:
            chunk.options = replace(chunk.options, sizes_bytes={})
        return True

    def _least_bytes(self, options: ChunkOptions) -> int:
        """Size of a chunk in the smallest encoding that the controller would take; 0 if it would take none."""
        return min((options.sizes_bytes[name] for name in self._ways(options)), default=0)

    def _ways(self, options: ChunkOptions) -> set[str]:
        """Encodings in which a chunk may come."""
        return options.sizes_bytes.keys() & set(self._controller.encodings)

    def _give_up(self, now_s: float) -> list[int]:
        lost = self._give_store_up(now_s)
        if not self._in(Place.IN_FLIGHT):
            return []
        given_up = []
        flying = tuple(chunk.options.index for chunk in self._in(Place.IN_FLIGHT))
        for index in flying if lost else self._controller.review(self._state(now_s)):
            chunk = self._chunks[index]
            if lost or chunk.cancellations < _MAX_CANCELLATIONS:
                chunk.cancellations += 1
                self._note_cancelled(index, chunk.source, chunk.received_bytes, chunk.started_s, now_s)
                self._seat.dropped(index)
                chunk.place = Place.UNDECIDED
                given_up.append(index)
        if given_up and not self._in(Place.IN_FLIGHT):
            self._patience.heard(now_s, waiting=False)  # nobody listens
        return given_up

    def _note_cancelled(self, index: int, encoding: str, received_bytes: int, started_s: float, now_s: float) -> None:
        self.wasted_bytes += received_bytes
        self._log(
            "fetch_cancelled",
            chunk=index,
            encoding=encoding,
            received_bytes=received_bytes,
            started_s=started_s,
            ended_s=now_s,
            throughput_bps=self._seat.link.throughput_bps,
        )

    def _carry_out(self, decision: Decision, state: LoadState, now_s: float) -> list[Command]:
        chunk = self._chunks[decision.index]
        assert chunk.place is Place.UNDECIDED, "controllers decide on remaining chunks"
        decision, early = self._last.settle(decision, state)
        self._log("decision", **decision_fields(decision, state, self._seat.link.estimator_name))
        chunk.source = str(decision.action)
        match decision.action:
            case Recompute():
                if not chunk.options.recomputable:
                    raise self._loss(chunk)
                chunk.place = Place.TO_RECOMPUTE
                return []
            case Stream(name):
                chunk.place = Place.IN_FLIGHT
                chunk.started_s = now_s if early is None else early.asked_s
                chunk.first_byte_s, chunk.received_bytes = None, 0
                self._patience.asked(now_s)
                awaited_s = now_s if early is None else self._awaited_s(early, now_s)
                self._seat.request(decision.index, chunk.options.sizes_bytes[name], awaited_s)
                return [Fetch(decision.index, name, chunk.options.sizes_bytes[name], early is not None)]

    def _awaited_s(self, early: EarlyObject, now_s: float) -> float:
        """Since when an answer is awaited: a store that was silent was silent for the index too, and is so no more."""
        return early.asked_s if early.begun else max(early.asked_s, now_s - self._seat.link.rtt_s)

    def _begin_recompute(self, now_s: float) -> list[Command]:
        """A chunk's prefill begins when everything before it is in place, and it is this load's turn."""
        for chunk in self._chunks:
            if chunk.place is Place.TO_RECOMPUTE:
                self._seat.ask_lane()
                if not self._seat.may_begin(now_s):
                    return []
                chunk.place = Place.RECOMPUTING
                self._seat.begin(chunk.options.recompute_s, now_s)
                return [Prefill(chunk.options.index)]
            if chunk.place is not Place.READY:
                return []
        return []

    def _refuse(self, chunk: ChunkProgress, *, gone: bool) -> None:
        """Let a chunk be decided anew, without what failed."""
        self.wasted_bytes += chunk.received_bytes
        left = dict(chunk.options.sizes_bytes)
        if gone:
            del left[chunk.source]
        if chunk.failures >= _MAX_FAILURES and chunk.options.recomputable:
            left = {}
        chunk.options = replace(chunk.options, sizes_bytes=left)
        chunk.place = Place.UNDECIDED
