"""The course of one load, without any input or output: it is told what happened, and says what to do next.

The streaming loader carries its commands out on real sockets and a real model; a simulation does so on a virtual
clock. Both so run the very same decisions.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Any, Protocol

from cachegen.controllers import ChunkOptions, Controller, Decision, LoadState, Recompute, Stream, Transfer
from cachegen.errors import InvalidInputError
from cachegen.estimators import ThroughputEstimator
from cachegen.link_use import LinkKnowledge, LinkUse
from cachegen.patience import Patience

# An object that failed as often is not asked for again; its chunk is recomputed.
_MAX_FAILURES = 2
# A chunk given up as often is left to arrive: a link that rises and falls must not have it begun for ever.
_MAX_CANCELLATIONS = 2
# After failures in a row the store is left in peace for a while, doubling from the first to the last of these.
_BACKOFF_S = (0.1, 2.0)


class EventLog(Protocol):
    """Takes what happens during a load, as it happens; called from one thread at a time."""

    def __call__(self, event: str, **fields: Any) -> None:
        """Note ``event``."""
        ...


@dataclass(frozen=True)
class LoadLimits:
    """What a load may have going at once.

    Parameters
    ----------
    in_flight : int
        Objects on their way.
    undecoded : int
        Objects that have arrived and wait for their decode: while there are as many, no further one is asked for. With
        ``in_flight`` this bounds the memory of a load.
    patience_s : float
        How long the store may be silent, and how long after the deadline it is waited for. Then what is missing is
        recomputed, whatever the controller says.
    """

    in_flight: int = 4
    undecoded: int = 3
    patience_s: float = 5.0


@dataclass(frozen=True)
class Fetch:
    """Ask for the chunk's object."""

    index: int
    encoding_name: str
    size_bytes: int


@dataclass(frozen=True)
class CancelFetch:
    """Give the chunk's object up; whatever arrives of it from now on is nobody's."""

    index: int


@dataclass(frozen=True)
class Prefill:
    """Recompute the chunk; all chunks before it are in place."""

    index: int


Command = Fetch | CancelFetch | Prefill


class _Place(Enum):
    """Where a chunk is."""

    UNDECIDED = auto()
    IN_FLIGHT = auto()
    UNDECODED = auto()
    TO_RECOMPUTE = auto()
    RECOMPUTING = auto()
    READY = auto()


@dataclass
class _Chunk:
    options: ChunkOptions
    place: _Place = _Place.UNDECIDED
    source: str = ""
    started_s: float = 0.0
    first_byte_s: float | None = None
    received_bytes: int = 0
    failures: int = 0
    cancellations: int = 0
    decision: Decision | None = field(default=None, repr=False)

    def transfer(self) -> Transfer:
        size_bytes = self.options.sizes_bytes[self.source]
        return Transfer(self.options.index, self.source, size_bytes, self.received_bytes, self.options)


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
        Receives ``decision``, ``fetch``, ``fetch_cancelled``, ``fetch_failed``, ``decode``, ``decode_failed``,
        ``store_given_up`` and ``recompute`` events.
    limits : LoadLimits, optional
        Default: those of the class.
    known : LinkKnowledge, optional
        Of the link, from loads before; default: nothing.

    Attributes
    ----------
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
    ) -> None:
        stored = {name for chunk in chunks for name in chunk.sizes_bytes}
        if controller.encodings and not stored & set(controller.encodings):
            raise InvalidInputError(f"no chunk is stored as {' or '.join(controller.encodings)}")
        self._chunks = [_Chunk(options) for options in chunks]
        self._controller, self._estimator, self._log = controller, estimator, log
        self._deadline_s, self._limits = deadline_s, limits or LoadLimits()
        self._link = LinkUse(estimator, known or LinkKnowledge())
        self._patience = Patience(self._limits.patience_s)
        self._compute_free_s = 0.0
        self._failures_in_a_row = 0
        self._fetch_from_s = 0.0
        self.wasted_bytes = 0

    @property
    def done(self) -> bool:
        """Whether all chunks are in place."""
        return all(chunk.place is _Place.READY for chunk in self._chunks)

    @property
    def chunk_sources(self) -> tuple[str, ...]:
        """How each chunk came: an encoding's name or ``recompute``."""
        return tuple(chunk.source for chunk in self._chunks)

    @property
    def link(self) -> LinkKnowledge:
        """What this load has learnt of the link."""
        return self._link.knowledge

    def commands(self, now_s: float) -> list[Command]:
        """Return what to do now; ask again after every event, and a few times a second without any."""
        self._link.wait(now_s, bool(self._in(_Place.IN_FLIGHT)))
        commands: list[Command] = [CancelFetch(index) for index in self._give_up(now_s)]
        while self._in(_Place.UNDECIDED):
            state = self._state(now_s)
            if not (state.may_fetch or state.may_recompute):
                break
            decision = self._controller.decide(state)
            if decision is None:
                break
            commands += self._carry_out(decision, state, now_s)
        return commands + self._begin_recompute(now_s)

    def first_byte(self, index: int, now_s: float) -> None:
        """Take note that the answer to a fetch begins to arrive."""
        chunk = self._chunks[index]
        chunk.first_byte_s = now_s
        self._link.answer(now_s, now_s - chunk.started_s)

    def received(self, index: int, num_bytes: int, now_s: float) -> None:
        """Take note of bytes of an object in flight."""
        self._chunks[index].received_bytes += num_bytes
        self._patience.heard(now_s, waiting=True)
        self._link.piece(num_bytes, now_s)

    def fetched(self, index: int, now_s: float) -> None:
        """Take note that an object is whole."""
        chunk = self._chunks[index]
        chunk.place = _Place.UNDECODED
        self._patience.heard(now_s, bool(self._in(_Place.IN_FLIGHT)))
        self._failures_in_a_row = 0
        size_bytes = chunk.options.sizes_bytes[chunk.source]
        self._link.transfer(size_bytes, chunk.started_s, now_s, bool(self._in(_Place.IN_FLIGHT)))
        self._log(
            "fetch",
            chunk=index,
            encoding=chunk.source,
            bytes=size_bytes,
            started_s=chunk.started_s,
            first_byte_s=chunk.first_byte_s,
            ended_s=now_s,
        )

    def fetch_failed(self, index: int, error: str, now_s: float, *, gone: bool) -> None:
        """Take note that an object does not come; ``gone``: nor would it the next time."""
        chunk = self._chunks[index]
        self._log("fetch_failed", chunk=index, encoding=chunk.source, error=error, received_bytes=chunk.received_bytes)
        if gone:  # so it said
            self._patience.heard(now_s, len(self._in(_Place.IN_FLIGHT)) > 1)
        if not gone:
            first_s, longest_s = _BACKOFF_S
            self._fetch_from_s = now_s + min(longest_s, first_s * 2.0**self._failures_in_a_row)
            self._failures_in_a_row += 1
        self._refuse(chunk, chunk.received_bytes, gone=gone)
        self._link.wait(now_s, bool(self._in(_Place.IN_FLIGHT)))

    def decoded(self, index: int, started_s: float, now_s: float) -> None:
        """Take note that a chunk is in place."""
        chunk = self._chunks[index]
        chunk.place = _Place.READY
        self._log("decode", chunk=index, encoding=chunk.source, started_s=started_s, ended_s=now_s)

    def decode_failed(self, index: int, error: str) -> None:
        """Take note that an object is damaged or foreign."""
        chunk = self._chunks[index]
        self._log("decode_failed", chunk=index, encoding=chunk.source, error=error)
        self._refuse(chunk, chunk.received_bytes, gone=True)

    def recomputed(self, index: int, started_s: float, now_s: float) -> None:
        """Take note that a chunk's prefill has ended."""
        chunk = self._chunks[index]
        chunk.place = _Place.READY
        self._compute_free_s = now_s
        self._log("recompute", chunk=index, started_s=started_s, ended_s=now_s, predicted_s=chunk.options.recompute_s)

    def _in(self, *places: _Place) -> list[_Chunk]:
        return [chunk for chunk in self._chunks if chunk.place in places]

    def _state(self, now_s: float) -> LoadState:
        flying = tuple(chunk.transfer() for chunk in self._in(_Place.IN_FLIGHT))
        remaining = tuple(chunk.options for chunk in self._in(_Place.UNDECIDED))
        waiting, computing = self._in(_Place.TO_RECOMPUTE), self._in(_Place.RECOMPUTING)
        free_s = max(now_s, self._compute_free_s) if computing else now_s
        return LoadState(
            elapsed_s=now_s,
            deadline_s=self._deadline_s,
            remaining=remaining,
            throughput_bps=self._estimator.bps,
            in_flight=flying,
            rtt_s=self._link.rtt_s,
            compute_free_s=free_s + sum(chunk.options.recompute_s for chunk in waiting),
            may_fetch=self._may_fetch(flying, now_s),
            # one that waits for a chunk before it, which was refused or given up meanwhile, must not hold that one up
            may_recompute=not computing
            and not (remaining and any(chunk.options.index < remaining[0].index for chunk in waiting)),
        )

    def _may_fetch(self, flying: tuple[Transfer, ...], now_s: float) -> bool:
        if now_s < self._fetch_from_s or len(flying) >= self._limits.in_flight:
            return False
        if len(self._in(_Place.UNDECODED)) >= self._limits.undecoded:
            return False
        # not sooner than the link would run dry without it: the later a decision, the more it knows
        return self._link.runs_dry(sum(transfer.missing_bytes for transfer in flying))

    def _give_store_up(self, now_s: float) -> bool:
        """Go on without the store if it is time to: what it has not brought can be recomputed alone."""
        open_ = [chunk for chunk in self._in(_Place.UNDECIDED, _Place.IN_FLIGHT) if chunk.options.sizes_bytes]
        if not open_:
            return False
        bps = self._link.knowledge.throughput_bps
        missing_bytes = sum(
            chunk.transfer().missing_bytes
            if chunk.place is _Place.IN_FLIGHT
            else min(chunk.options.sizes_bytes.values())
            for chunk in open_
        )
        left = [chunk for chunk in self._chunks if chunk.place not in {_Place.READY, _Place.UNDECODED}]
        reason = self._patience.verdict(
            now_s,
            self._deadline_s,
            sum(chunk.options.recompute_s for chunk in left),
            8 * missing_bytes / bps if bps else None,
        )
        if not reason:
            return False
        self._log("store_given_up", reason=reason, chunks=[chunk.options.index for chunk in open_])
        for chunk in open_:
            chunk.options = replace(chunk.options, sizes_bytes={})
        return True

    def _give_up(self, now_s: float) -> list[int]:
        lost = self._give_store_up(now_s)
        if not self._in(_Place.IN_FLIGHT):
            return []
        given_up = []
        flying = tuple(chunk.options.index for chunk in self._in(_Place.IN_FLIGHT))
        for index in flying if lost else self._controller.review(self._state(now_s)):
            chunk = self._chunks[index]
            if lost or chunk.cancellations < _MAX_CANCELLATIONS:
                chunk.cancellations += 1
                self.wasted_bytes += chunk.received_bytes
                self._log(
                    "fetch_cancelled",
                    chunk=index,
                    encoding=chunk.source,
                    received_bytes=chunk.received_bytes,
                    started_s=chunk.started_s,
                    ended_s=now_s,
                    throughput_bps=self._estimator.bps,
                )
                chunk.place = _Place.UNDECIDED
                given_up.append(index)
        if given_up and not self._in(_Place.IN_FLIGHT):
            self._patience.heard(now_s, waiting=False)  # nobody listens
        return given_up

    def _carry_out(self, decision: Decision, state: LoadState, now_s: float) -> list[Command]:
        chunk = self._chunks[decision.index]
        assert chunk.place is _Place.UNDECIDED, "controllers decide on remaining chunks"
        self._log(
            "decision",
            chunk=decision.index,
            action=str(decision.action),
            reason=decision.reason,
            deadline_s=state.deadline_s,
            throughput_bps=state.throughput_bps,
            rtt_s=state.rtt_s,
            backlog_bytes=state.backlog_bytes,
            compute_free_s=state.compute_free_s,
            finish_s=dict(decision.finish_s),
        )
        chunk.source = str(decision.action)
        match decision.action:
            case Recompute():
                chunk.place = _Place.TO_RECOMPUTE
                return []
            case Stream(name):
                chunk.place = _Place.IN_FLIGHT
                chunk.started_s, chunk.first_byte_s, chunk.received_bytes = now_s, None, 0
                self._patience.asked(now_s)
                self._link.request(now_s)
                return [Fetch(decision.index, name, chunk.options.sizes_bytes[name])]

    def _begin_recompute(self, now_s: float) -> list[Command]:
        """A chunk's prefill begins when everything before it is in place."""
        for chunk in self._chunks:
            if chunk.place is _Place.TO_RECOMPUTE:
                chunk.place = _Place.RECOMPUTING
                self._compute_free_s = now_s + chunk.options.recompute_s
                return [Prefill(chunk.options.index)]
            if chunk.place is not _Place.READY:
                return []
        return []

    def _refuse(self, chunk: _Chunk, wasted_bytes: int, *, gone: bool) -> None:
        """Let a chunk be decided anew, without what failed."""
        self.wasted_bytes += wasted_bytes
        chunk.failures += 1
        left = dict(chunk.options.sizes_bytes)
        if gone:
            del left[chunk.source]
        if chunk.failures >= _MAX_FAILURES:
            left = {}
        chunk.options = replace(chunk.options, sizes_bytes=left)
        chunk.place = _Place.UNDECIDED
