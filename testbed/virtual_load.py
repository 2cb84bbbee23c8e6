"""One load on a virtual clock: the real course of a load and the real controller, on a link and costs that are given.

Nothing is measured and nothing is random, so the same input gives the same result to the last bit, on any machine.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from cachegen import (
    CancelFetch,
    ChunkOptions,
    Controller,
    EventLog,
    Fetch,
    LinkKnowledge,
    LoadSession,
    Prefill,
    ThroughputEstimator,
)
from testbed.virtual_link import VirtualLink

TICK_S = 0.005


@dataclass(frozen=True)
class VirtualCosts:
    """What takes time besides the link.

    Parameters
    ----------
    decode_s : callable
        Seconds to decode ``(encoding, tokens)``; one chunk after the other.
    reserve_s : float
        That the controller sets aside for what follows the last byte.
    question_s : float
        Prefill of the question, once the context is loaded.
    """

    decode_s: Callable[[str, int], float]
    reserve_s: float
    question_s: float


@dataclass(frozen=True)
class VirtualResult:
    """How a load went: seconds to the first token, how each chunk came, and bytes that arrived."""

    ttft_s: float
    chunk_sources: tuple[str, ...]
    received_bytes: int
    wasted_bytes: int
    link: LinkKnowledge


def run_virtual_load(
    chunks: Sequence[ChunkOptions],
    controller: Controller,
    estimator: ThroughputEstimator,
    link: VirtualLink,
    rtt_s: float,
    slo_s: float,
    costs: VirtualCosts,
    log: EventLog,
    give_up_s: float = 600.0,
    known: LinkKnowledge | None = None,
) -> VirtualResult:
    """Load a context; the index has arrived after one round trip.

    Parameters
    ----------
    chunks : sequence of ChunkOptions
        Of the context, in order; their ``recompute_s`` is what recomputation takes here.
    controller, estimator
        Both new.
    link : VirtualLink
        At time 0.
    rtt_s : float
        The link's.
    slo_s : float
        TTFT objective.
    costs : VirtualCosts
        For what is not the link.
    log : EventLog
        Receives the session's events.
    give_up_s : float
        When a load that does not end is given up.
    known : LinkKnowledge, optional
        Of the link, from loads before.
    """
    session = LoadSession(chunks, controller, estimator, slo_s - costs.reserve_s, log, known=known)
    course = _Course(session, chunks, link, costs)
    now_s = rtt_s
    link.advance(now_s)
    while not session.done and now_s < give_up_s:
        course.obey(now_s)
        now_s += TICK_S
        course.observe(now_s)
    return VirtualResult(
        now_s + costs.question_s,
        session.chunk_sources,
        round(course.received_bytes),
        session.wasted_bytes,
        session.link,
    )


class _Course:
    """Carries a session's commands out and tells it what came of them."""

    def __init__(
        self, session: LoadSession, chunks: Sequence[ChunkOptions], link: VirtualLink, costs: VirtualCosts
    ) -> None:
        self._session, self._chunks, self._link, self._costs = session, chunks, link, costs
        self._fetching: dict[int, str] = {}
        self._begun: set[int] = set()
        self._part: dict[int, float] = {}
        self._prefill: tuple[int, float, float] | None = None
        self._decodes: list[tuple[int, float, float]] = []
        self.received_bytes = 0.0

    def obey(self, now_s: float) -> None:
        for command in self._session.commands(now_s):
            match command:
                case Fetch(index, encoding, size_bytes):
                    self._fetching[index] = encoding
                    self._part[index] = 0.0
                    self._link.request(index, size_bytes)
                case CancelFetch(index):
                    self._link.cancel(index)
                    self._drop(index)
                case Prefill(index):
                    self._prefill = (index, now_s, now_s + self._chunks[index].recompute_s)

    def observe(self, now_s: float) -> None:
        for key, arrived in self._link.advance(now_s).items():
            assert isinstance(key, int)  # chunks are the keys
            self._arrive(key, arrived, now_s)
        if self._prefill is not None and self._prefill[2] <= now_s:
            index, started_s, ended_s = self._prefill
            self._prefill = None
            self._session.recomputed(index, started_s, ended_s)
        while self._decodes and self._decodes[0][2] <= now_s:
            self._session.decoded(*self._decodes.pop(0))

    def _arrive(self, index: int, arrived: float, now_s: float) -> None:
        self.received_bytes += arrived
        if index not in self._begun:
            self._begun.add(index)
            self._session.first_byte(index, now_s)
        before, self._part[index] = self._part[index], self._part[index] + arrived
        self._session.received(index, round(self._part[index]) - round(before), now_s)
        if self._link.is_whole(index):
            encoding = self._fetching[index]
            self._session.fetched(index, now_s)
            self._drop(index)
            begin_s = max(now_s, self._decodes[-1][2] if self._decodes else 0.0)
            end_s = begin_s + self._costs.decode_s(encoding, self._chunks[index].num_tokens)
            self._decodes.append((index, begin_s, end_s))

    def _drop(self, index: int) -> None:
        self._begun.discard(index)
        del self._fetching[index], self._part[index]


def log_nothing(event: str, **fields: Any) -> None:
    """Take an event that nobody asked for."""
