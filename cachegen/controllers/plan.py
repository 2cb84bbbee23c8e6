"""The plan behind ``meet`` and ``oracle``: the compute side recomputes from the front while the network delivers from
the back, until they meet.

Recomputing a chunk needs the KV of all chunks before it, a streamed chunk needs nothing: so recomputation takes the
front and streaming the back. For a given encoding the meeting point that ends the load first is the one at which both
sides end at about the same time. The plan takes the finest encoding whose best meeting point holds the target, or, when
none does, the one that ends first. Objects are decoded one after the other beside all that: a link that is quicker than
the decoder waits for it.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from cachegen.controllers.base import ChunkOptions, LoadState


class LinkForecast(Protocol):
    """What the link is expected to do."""

    def arrival_s(self, start_s: float, size_bytes: float) -> float:
        """Return when as many bytes have arrived if they begin to flow at ``start_s``; infinite if they never do."""
        ...


@dataclass(frozen=True)
class ConstantRate:
    """The link keeps one throughput, in bits per second."""

    bps: float

    def arrival_s(self, start_s: float, size_bytes: float) -> float:
        """See :meth:`LinkForecast.arrival_s`."""
        if not size_bytes:
            return start_s
        return start_s + 8 * size_bytes / self.bps if self.bps else math.inf


@dataclass(frozen=True)
class Plan:
    """How the remaining chunks should come.

    Parameters
    ----------
    names : tuple of (str or None)
        For each remaining chunk, in order: the encoding to stream it in; ``None``: recompute it. Recomputed ones come
        first, but for those that are not to be had in any encoding.
    finish_s : float
        When the load then ends, the chunks in flight included.
    """

    names: tuple[str | None, ...]
    finish_s: float


def make_plan(state: LoadState, ladder: Sequence[str], forecast: LinkForecast, target_s: float) -> Plan:
    """Return the plan that holds ``target_s`` with the finest encoding, or the one that ends first.

    Parameters
    ----------
    state : LoadState
        The remaining chunks, what is in flight before them, and when the compute side is free.
    ladder : sequence of str
        The encodings to choose from, finest first. A chunk that is not to be had in one takes the next coarser.
    forecast : LinkForecast
        What the link will do.
    target_s : float
        When the load should have ended.
    """
    return pick_plan(each_plan(state, ladder, forecast), target_s)


def each_plan(state: LoadState, ladder: Sequence[str], forecast: LinkForecast) -> Iterator[Plan]:
    """Yield the best plan that streams in each encoding of the ladder, the finest first."""
    for place in range(max(1, len(ladder))):
        yield _split(state, ladder[place:], forecast)


def pick_plan(plans: Iterable[Plan], target_s: float) -> Plan:
    """Return the first plan that holds ``target_s``, or of all the one that ends first."""
    seen = []
    for plan in plans:
        if plan.finish_s <= target_s:
            return plan
        seen.append(plan)
    return min(seen, key=lambda plan: plan.finish_s)


def flow_start_s(state: LoadState) -> float:
    """When the link begins to deliver what is asked for now: a request on its way hides the round trip of the next."""
    hidden = state.in_flight or state.flying_bytes or state.early is not None
    return state.elapsed_s + (0.0 if hidden else state.rtt_s)


def _split(state: LoadState, ladder: Sequence[str], forecast: LinkForecast) -> Plan:
    """The best meeting point when chunks are streamed in the first encoding of the ladder that there is."""
    chunks = state.remaining
    names = [next((name for name in ladder if name in chunk.sizes_bytes), None) for chunk in chunks]
    start_s = flow_start_s(state)
    in_flight_s = forecast.arrival_s(start_s, state.link_bytes) if state.in_flight else state.elapsed_s
    compute_s = _compute_ends(state, chunks)
    # the deadline leaves out the decode of whatever ends last
    last_s = min((transfer.decode_s for transfer in state.in_flight), default=0.0)
    decoded_s = max(state.elapsed_s + state.decode_s, in_flight_s + last_s)
    best_count, best_s = len(chunks), max(compute_s[-1], decoded_s - last_s)
    size_bytes: float = state.backlog_bytes
    gaps_s = 0.0
    for count in range(len(chunks) - 1, -1, -1):
        name = names[count]
        if name is None:  # not to be had: recomputed when everything before it is in place
            gaps_s += chunks[count].recompute_s
            continue
        size_bytes += chunks[count].sizes_bytes[name]
        # an object waits for the decoder, or the decoder for it
        streamed_s = max(forecast.arrival_s(start_s, size_bytes), decoded_s)
        decoded_s = streamed_s + chunks[count].decode_s.get(name, 0.0)
        finish_s = max(compute_s[count], streamed_s) + gaps_s
        if finish_s < best_s:
            best_count, best_s = count, finish_s
        if streamed_s >= compute_s[count]:  # the two ends have met: from here on the link alone makes it later
            break
    return Plan((None,) * best_count + tuple(names[best_count:]), best_s)


def _compute_ends(state: LoadState, chunks: Sequence[ChunkOptions]) -> list[float]:
    """When the compute side is done with the first 0, 1, 2 ... chunks: with none, only what is decided has to end."""
    free_s = max(state.elapsed_s, state.compute_free_s)
    computed_s = free_s if state.computed_s is None else max(state.elapsed_s, state.computed_s)
    ends = [computed_s]
    for chunk in chunks:
        free_s += chunk.recompute_s
        ends.append(free_s)
    return ends
