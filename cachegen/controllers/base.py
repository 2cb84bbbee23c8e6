"""What a controller is asked whenever a load may go on, what it may answer, and what it could know.

Everything here is numbers: sizes, seconds, indices. A controller never sees a tensor, a socket or a clock, so
the same object decides in a real load, in a unit test and in a simulation.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Protocol

from cachegen.errors import InvalidInputError
from cachegen.link_use import LinkKnowledge
from cachegen.recompute_cost import IMPOSSIBLE_S

# The key of recomputation among the predictions of a Decision; no encoding has this name.
RECOMPUTE = "recompute"


@dataclass(frozen=True)
class Stream:
    """Fetch the chunk's object in this encoding and decode it."""

    encoding_name: str

    def __str__(self) -> str:
        return self.encoding_name


@dataclass(frozen=True)
class Recompute:
    """Run the model's prefill on the chunk's tokens, given the KV of all chunks before it."""

    def __str__(self) -> str:
        return RECOMPUTE


Action = Stream | Recompute


@dataclass(frozen=True)
class ChunkOptions:
    """One chunk that is still to be loaded, and what each way to get it costs.

    Parameters
    ----------
    index
        The chunk's place in the context, from 0.
    num_tokens
        Its length.
    sizes_bytes
        Bytes of its object in each stored encoding, by the encoding's name, finest first.
    recompute_s
        Estimated seconds of prefill for this chunk, given the KV of all chunks before it; ``IMPOSSIBLE_S`` or more:
        there is no text to recompute it from.
    decode_s
        Estimated seconds to decode its object, by the encoding's name; one that is not named counts as nothing.

    Raises
    ------
    InvalidInputError
        A negative or non-finite number, or a chunk without tokens.
    """

    index: int
    num_tokens: int
    sizes_bytes: Mapping[str, int]
    recompute_s: float
    decode_s: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.index < 0 or self.num_tokens < 1:
            raise InvalidInputError(f"chunk {self.index} of {self.num_tokens} tokens cannot be")
        for name, size_bytes in self.sizes_bytes.items():
            if size_bytes < 0:
                raise InvalidInputError(f"chunk {self.index}: size {size_bytes} of {name} is negative")
        _check_amount(f"chunk {self.index}: recompute_s", self.recompute_s)
        for name, spent_s in self.decode_s.items():
            _check_amount(f"chunk {self.index}: decode_s of {name}", spent_s)

    @property
    def recomputable(self) -> bool:
        """Whether recomputing it gives the chunk's KV at all."""
        return self.recompute_s < IMPOSSIBLE_S

    def slowed(self, factor: float) -> "ChunkOptions":
        """Return this chunk with a prefill that takes ``factor`` times as long, as on a lane that others use too."""
        return replace(self, recompute_s=factor * self.recompute_s)


@dataclass(frozen=True)
class Transfer:
    """A chunk's object on its way.

    Parameters
    ----------
    index
        The chunk's place in the context.
    encoding_name
        What it is fetched in.
    size_bytes, received_bytes
        Of the object, and how much of it has arrived.
    options
        The chunk's, for a decision anew.
    """

    index: int
    encoding_name: str
    size_bytes: int
    received_bytes: int
    options: ChunkOptions

    @property
    def decode_s(self) -> float:
        """Expected seconds to decode it."""
        return self.options.decode_s.get(self.encoding_name, 0.0)

    @property
    def missing_bytes(self) -> int:
        """Bytes still to come."""
        return self.size_bytes - self.received_bytes


@dataclass(frozen=True)
class LoadState:
    """All that a controller may know when it decides.

    Parameters
    ----------
    elapsed_s
        Time since the request arrived.
    deadline_s
        When the load must end, on the same clock: the SLO less the reserve for what follows the load, which
        is the decode of the last chunk and the prefill of the question. May be negative.
    remaining
        The chunks that are not yet decided, in order.
    throughput_bps
        The estimator's throughput of the link in bits per second; ``None`` before it has one.
    in_flight
        Objects on their way.
    rtt_s
        Between asking for an object and its first byte, the shortest seen; 0 before any.
    compute_free_s
        When the compute side should be free for this load's next recomputation, those of its own and of more urgent
        loads before it; not before ``elapsed_s`` if it is at anything.
    may_fetch, may_recompute
        Whether another fetch, another recomputation can begin now.
    recomputing
        Whether a recomputation of its own is decided and has not ended.
    computed_s
        When the last of those should end; ``None``: when the compute side is free.
    flying_bytes
        On their way for other loads at the same link.
    ahead_bytes
        Of more urgent loads, that are expected to be asked for before its next object.
    decode_s
        Of decoding the objects that are on their way or have arrived, one after the other.
    early
        Encoding in which the context's last chunk, one of ``remaining``, has been on its way since before the index:
        streamed in that, or in one about as fine, it comes a round trip sooner. ``None``: in none.

    Raises
    ------
    InvalidInputError
        Chunks out of order, or a number that cannot be.
    """

    elapsed_s: float
    deadline_s: float
    remaining: tuple[ChunkOptions, ...]
    throughput_bps: float | None
    in_flight: tuple[Transfer, ...] = ()
    rtt_s: float = 0.0
    compute_free_s: float = 0.0
    may_fetch: bool = True
    may_recompute: bool = True
    recomputing: bool = False
    computed_s: float | None = None
    flying_bytes: int = 0
    ahead_bytes: int = 0
    decode_s: float = 0.0
    early: str | None = None

    def __post_init__(self) -> None:
        for name in ("elapsed_s", "rtt_s", "compute_free_s", "flying_bytes", "ahead_bytes", "decode_s"):
            _check_amount(name, getattr(self, name))
        if not math.isfinite(self.deadline_s):
            raise InvalidInputError(f"deadline_s must be finite, not {self.deadline_s}")
        if self.throughput_bps is not None:
            _check_amount("throughput_bps", self.throughput_bps)
        for before, chunk in pairwise(self.remaining):
            if chunk.index <= before.index:
                raise InvalidInputError(f"chunk {chunk.index} stands behind chunk {before.index}")

    @property
    def remaining_s(self) -> float:
        """Seconds until the deadline; negative once it has passed."""
        return self.deadline_s - self.elapsed_s

    @property
    def link_bytes(self) -> int:
        """Bytes on their way, this load's and those of others."""
        return sum(transfer.missing_bytes for transfer in self.in_flight) + self.flying_bytes

    @property
    def backlog_bytes(self) -> int:
        """Bytes on their way or to be asked for before, which whatever is asked for next will wait for."""
        return self.link_bytes + self.ahead_bytes


@dataclass(frozen=True)
class Decision:
    """What to do with one chunk, and what that was based on.

    Parameters
    ----------
    index
        The chunk: one of ``LoadState.remaining``.
    action
        Stream it in an encoding, or recompute it.
    finish_s
        For each option, by name: when the load would end if *all* remaining chunks took it, on the clock of
        ``LoadState.elapsed_s``; ``None`` where no throughput is known, or it is so low that there is no end, or where
        a chunk cannot be recomputed.
    reason
        A few words for the event log.
    planned_finish_s
        When the load would end by what the decision is a part of, on the same clock; ``None`` where nothing is planned
        or no end is in sight.
    """

    index: int
    action: Action
    finish_s: Mapping[str, float | None]
    reason: str
    planned_finish_s: float | None = None


class Controller(Protocol):
    """Chooses between the encodings and recomputation, chunk by chunk."""

    encodings: tuple[str, ...]
    """Those it may choose, finest first; a chunk need not be stored in all of them."""
    estimator: str
    """Name of the throughput estimator that suits it, where the caller has no wish of his own."""

    def before_index(self, known: LinkKnowledge | None) -> str | None:
        """Return the encoding in which to ask for the context's last chunk while nothing is known of its chunks.

        Its object's name is known, and with the index on its way the link has nothing to do. ``None``: in none.

        Parameters
        ----------
        known
            Of the link, from loads before, if there were any.
        """
        ...

    def decide(self, state: LoadState) -> Decision | None:
        """Decide on one of ``state.remaining``, of which there is one at least.

        The same state always gives the same decision. ``None``: nothing that ``may_fetch`` and ``may_recompute`` leave
        open is worth doing now; there will be another question. A chunk that is not ``recomputable`` has to be
        streamed, however long that takes.
        """
        ...

    def review(self, state: LoadState) -> tuple[int, ...]:
        """Return the indices of objects in flight to give up; their chunks will have to be decided anew."""
        ...


class InOrderController:
    """Base of those that decide on the first remaining chunk, never look back, and do one thing at a time.

    A recomputation holds the next decision up; a fetch does so as long as ``may_fetch`` says.
    """

    encodings: tuple[str, ...] = ()
    estimator = "last-chunk"

    def before_index(self, known: LinkKnowledge | None) -> str | None:  # noqa: ARG002 - the last chunk is not what it begins with
        """Return ``None``: what is decided in order begins with the first chunk."""
        return None

    def decide(self, state: LoadState) -> Decision | None:
        """Return :meth:`choose`'s decision on the first remaining chunk, if it can be carried out now."""
        if state.recomputing:
            return None
        finish_s = predict_finish_s(state)
        action, reason = self.choose(state, finish_s)
        if not (state.may_fetch if isinstance(action, Stream) else state.may_recompute):
            return None
        return Decision(state.remaining[0].index, action, finish_s, reason, finish_s.get(str(action)))

    def choose(self, state: LoadState, finish_s: Mapping[str, float | None]) -> tuple[Action, str]:
        """Return what to do with the first remaining chunk, and why."""
        raise NotImplementedError

    def review(self, state: LoadState) -> tuple[int, ...]:  # noqa: ARG002 - it never looks back
        """Give nothing up."""
        return ()


def predict_finish_s(state: LoadState) -> dict[str, float | None]:
    """Return when the load ends if all remaining chunks take one option, for each option that all of them have.

    Streaming is assumed to run at the estimated throughput throughout (CacheGen, section 5.3), behind what flies now.
    """
    recompute_s = sum(chunk.recompute_s for chunk in state.remaining)
    recomputed_s = max(state.elapsed_s, state.compute_free_s) + recompute_s
    recomputable = all(chunk.recomputable for chunk in state.remaining)
    finish_s: dict[str, float | None] = {RECOMPUTE: recomputed_s if recomputable else None}
    for name in state.remaining[0].sizes_bytes:
        sizes_bytes = [chunk.sizes_bytes.get(name) for chunk in state.remaining]
        known = [size for size in sizes_bytes if size is not None]
        if len(known) == len(sizes_bytes):
            finish_s[name] = _stream_finish_s(state, sum(known))
    return finish_s


def _stream_finish_s(state: LoadState, size_bytes: int) -> float | None:
    if not state.throughput_bps:
        return None
    finish_s = state.elapsed_s + 8 * (state.backlog_bytes + size_bytes) / state.throughput_bps
    # A throughput next to zero overflows: as good as none.
    return finish_s if math.isfinite(finish_s) else None


def _check_amount(field: str, value: float) -> None:
    if not math.isfinite(value) or value < 0:
        raise InvalidInputError(f"{field} must be finite and not negative, not {value}")
