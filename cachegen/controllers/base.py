"""What a controller is asked before each chunk, what it may answer, and what it could know.

Everything here is numbers: sizes, seconds, indices. A controller never sees a tensor, a socket or a clock, so
the same object decides in a real load, in a unit test and in a simulation.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from cachegen.errors import InvalidInputError

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
        Estimated seconds of prefill for this chunk, given the KV of all chunks before it.

    Raises
    ------
    InvalidInputError
        A negative or non-finite number, or a chunk without tokens.
    """

    index: int
    num_tokens: int
    sizes_bytes: Mapping[str, int]
    recompute_s: float

    def __post_init__(self) -> None:
        if self.index < 0 or self.num_tokens < 1:
            raise InvalidInputError(f"chunk {self.index} of {self.num_tokens} tokens cannot be")
        for name, size_bytes in self.sizes_bytes.items():
            if size_bytes < 0:
                raise InvalidInputError(f"chunk {self.index}: size {size_bytes} of {name} is negative")
        _check_amount(f"chunk {self.index}: recompute_s", self.recompute_s)


@dataclass(frozen=True)
class LoadState:
    """All that a controller may know when it decides on one chunk.

    Parameters
    ----------
    elapsed_s
        Time since the request arrived.
    deadline_s
        When the load must end, on the same clock: the SLO less the reserve for what follows the load, which
        is the decode of the last chunk and the prefill of the question. May be negative.
    remaining
        The chunks that are not yet decided, in order; the first one is to be decided now. All have the same
        encodings.
    throughput_bps
        Measured throughput of the last streamed chunk in bits per second; ``None`` before there is one.

    Raises
    ------
    InvalidInputError
        No chunk remains, chunks out of order or with differing encodings, or a number that cannot be.
    """

    elapsed_s: float
    deadline_s: float
    remaining: tuple[ChunkOptions, ...]
    throughput_bps: float | None

    def __post_init__(self) -> None:
        _check_amount("elapsed_s", self.elapsed_s)
        if not math.isfinite(self.deadline_s):
            raise InvalidInputError(f"deadline_s must be finite, not {self.deadline_s}")
        if self.throughput_bps is not None:
            _check_amount("throughput_bps", self.throughput_bps)
        if not self.remaining:
            raise InvalidInputError("no chunk remains: there is nothing to decide")
        names = list(self.remaining[0].sizes_bytes)
        for place, chunk in enumerate(self.remaining):
            if chunk.index != self.next_chunk + place:
                raise InvalidInputError(f"chunk {chunk.index} stands where {self.next_chunk + place} should")
            if list(chunk.sizes_bytes) != names:
                raise InvalidInputError(
                    f"chunk {chunk.index} has the encodings {list(chunk.sizes_bytes)}, "
                    f"chunk {self.next_chunk} has {names}"
                )

    @property
    def next_chunk(self) -> int:
        """Index of the chunk to decide now."""
        return self.remaining[0].index

    @property
    def remaining_s(self) -> float:
        """Seconds until the deadline; negative once it has passed."""
        return self.deadline_s - self.elapsed_s


@dataclass(frozen=True)
class Decision:
    """What to do with one chunk, and what that was based on.

    Parameters
    ----------
    action
        Stream the chunk in an encoding, or recompute it.
    finish_s
        For each option, by name: when the load would end if *all* remaining chunks took it, on the clock of
        ``LoadState.elapsed_s``; ``None`` where no throughput is known, or it is so low that there is no end.
    reason
        A few words for the event log.
    """

    action: Action
    finish_s: Mapping[str, float | None]
    reason: str


class Controller(Protocol):
    """Chooses, chunk by chunk, between the encodings and recomputation."""

    def decide(self, state: LoadState) -> Decision:
        """Decide on the first of ``state.remaining``; the same state always gives the same decision."""
        ...


def predict_finish_s(state: LoadState) -> dict[str, float | None]:
    """Return when the load ends if all remaining chunks take one option, for each option.

    Streaming is assumed to run at the last measured throughput throughout (CacheGen, section 5.3).
    """
    recompute_s = sum(chunk.recompute_s for chunk in state.remaining)
    finish_s: dict[str, float | None] = {RECOMPUTE: state.elapsed_s + recompute_s}
    for name in state.remaining[0].sizes_bytes:
        size_bytes = sum(chunk.sizes_bytes[name] for chunk in state.remaining)
        finish_s[name] = _stream_finish_s(state, size_bytes)
    return finish_s


def _stream_finish_s(state: LoadState, size_bytes: int) -> float | None:
    if not state.throughput_bps:
        return None
    finish_s = state.elapsed_s + 8 * size_bytes / state.throughput_bps
    # A throughput next to zero overflows: as good as none.
    return finish_s if math.isfinite(finish_s) else None


def _check_amount(field: str, value: float) -> None:
    if not math.isfinite(value) or value < 0:
        raise InvalidInputError(f"{field} must be finite and not negative, not {value}")
