"""Loads on a virtual clock: the real course of each and the real controller, on a link and costs that are given.

Nothing is measured and nothing is random, so the same input gives the same result to the last bit, on any machine.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from cachegen import (
    AdmissionError,
    CancelFetch,
    ChunkOptions,
    Controller,
    EarlyObject,
    EventLog,
    Fetch,
    LinkKnowledge,
    LoadSession,
    Prefill,
    SharedHost,
    ThroughputEstimator,
    make_sharing,
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
class VirtualRequest:
    """One of several loads at a host.

    Parameters
    ----------
    arrival_s : float
        On the link's clock.
    chunks : sequence of ChunkOptions
        Of the context, in order; their ``recompute_s`` is what recomputation takes here.
    controller, estimator
        Both new.
    slo_s : float
        TTFT objective.
    log : EventLog
        Receives the session's events.
    known : LinkKnowledge, optional
        Of the link, from loads before.
    """

    arrival_s: float
    chunks: Sequence[ChunkOptions]
    controller: Controller
    estimator: ThroughputEstimator
    slo_s: float
    log: EventLog
    known: LinkKnowledge | None = None


@dataclass(frozen=True)
class VirtualResult:
    """How a load went: seconds to the first token, how each chunk came, and bytes that arrived.

    ``ttft_s`` is infinite for a load that was refused, with ``refused`` saying why.
    """

    ttft_s: float
    chunk_sources: tuple[str, ...]
    received_bytes: int
    wasted_bytes: int
    link: LinkKnowledge
    refused: str = ""


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
    """Load a context on a host of its own; the index has arrived after one round trip.

    Parameters
    ----------
    chunks, controller, estimator, slo_s, log, known
        See :class:`VirtualRequest`.
    link : VirtualLink
        At time 0.
    rtt_s : float
        The link's.
    costs : VirtualCosts
        For what is not the link.
    give_up_s : float
        When a load that does not end is given up.
    """
    request = VirtualRequest(0.0, chunks, controller, estimator, slo_s, log, known)
    [result] = run_virtual_loads([request], link, rtt_s, costs, give_up_s=give_up_s)
    return result


def run_virtual_loads(
    requests: Sequence[VirtualRequest],
    link: VirtualLink,
    rtt_s: float,
    costs: VirtualCosts,
    *,
    sharing: str = "equal",
    admission: bool = False,
    give_up_s: float = 600.0,
    tick_s: float = TICK_S,
) -> list[VirtualResult]:
    """Load contexts that share a link, a compute lane and a decoder; results in the order of the requests.

    Parameters
    ----------
    requests : sequence of VirtualRequest
        In order of arrival.
    link : VirtualLink
        At time 0.
    rtt_s : float
        The link's; each load's index has arrived as long after its arrival.
    costs : VirtualCosts
        For what is not the link.
    sharing : str
        Policy, see ``cachegen.SHARING``.
    admission : bool
        Whether loads that could not hold their deadline are refused.
    give_up_s : float
        When a load that has not ended is given up, seconds after its arrival.
    tick_s : float
        Between two looks at what happens.
    """
    host = SharedHost(make_sharing(sharing))
    decoder = _Decoder()
    now_s = requests[0].arrival_s + rtt_s
    link.advance(now_s)
    waiting, courses = list(enumerate(requests)), list[_Course]()
    results: dict[int, VirtualResult] = {}
    while len(results) < len(requests):
        while waiting and waiting[0][1].arrival_s + rtt_s <= now_s:
            number, request = waiting.pop(0)
            alone = not courses and not host.one_queue
            early = _ask_early(number, request, link) if alone else None
            courses.append(_Course(number, request, host, link, decoder, costs, rtt_s, early))
            if admission and (refused := courses[-1].refusal(now_s)) is not None:
                results[number] = courses.pop().end(math.inf, refused)
        for course in sorted(courses, key=lambda course: course.deadline_s):
            course.obey(now_s)
        now_s += tick_s
        arrived = link.advance(now_s)
        for course in list(courses):
            ended_s = course.observe(arrived, now_s)
            if ended_s is None and now_s - course.request.arrival_s >= give_up_s:
                ended_s = now_s
            if ended_s is not None:
                courses.remove(course)
                results[course.number] = course.end(ended_s)
    return [results[number] for number in range(len(requests))]


def _ask_early(number: int, request: VirtualRequest, link: VirtualLink) -> EarlyObject | None:
    """Have asked for the last chunk's object together with the index, if the controller wants one that there is."""
    name = request.controller.before_index(request.known)
    if name is None or name not in request.chunks[-1].sizes_bytes:
        return None
    link.request((number, len(request.chunks) - 1), request.chunks[-1].sizes_bytes[name], request.arrival_s)
    return EarlyObject(name, 0.0)


class _Decoder:
    """Decodes one chunk after the other, whosever it is."""

    def __init__(self) -> None:
        self._free_s = 0.0

    def add(self, seconds: float, now_s: float) -> tuple[float, float]:
        """When a chunk that arrives now is begun and ended."""
        begin_s = max(now_s, self._free_s)
        self._free_s = begin_s + seconds
        return begin_s, self._free_s


class _Course:
    """Carries a session's commands out and tells it what came of them; times outside are the link's clock."""

    def __init__(
        self,
        number: int,
        request: VirtualRequest,
        host: SharedHost,
        link: VirtualLink,
        decoder: _Decoder,
        costs: VirtualCosts,
        rtt_s: float,
        early: EarlyObject | None,
    ) -> None:
        self.number, self.request, self._early = number, request, early
        self._link, self._decoder, self._costs = link, decoder, costs
        self._session = LoadSession(
            request.chunks,
            request.controller,
            request.estimator,
            request.slo_s - costs.reserve_s,
            request.log,
            # the round trip is that of the index
            known=LinkKnowledge(request.known.throughput_bps if request.known else None, rtt_s),
            host=host,
            arrival_s=request.arrival_s,
            after_s=costs.question_s,
            early=early,
        )
        self.deadline_s = request.arrival_s + request.slo_s
        self._fetching: dict[int, str] = {}
        self._begun: set[int] = set()
        self._part: dict[int, float] = {}
        self._prefill: tuple[int, float, float] | None = None
        self._decodes: list[tuple[int, float, float]] = []
        self._question_ends_s: float | None = None
        self._received_bytes = 0.0

    def refusal(self, now_s: float) -> str | None:
        """Why the load is not admitted; ``None`` if it is."""
        try:
            self._session.admit(now_s - self.request.arrival_s)
        except AdmissionError as error:
            return str(error)
        return None

    def obey(self, now_s: float) -> None:
        """Do what the session says."""
        if self._session.done:
            self._ask_question(now_s)
            return
        commands = self._session.commands(now_s - self.request.arrival_s)
        taken = any(isinstance(command, Fetch) and command.early for command in commands)
        self._settle_early(taken=taken, now_s=now_s)
        for command in commands:
            match command:
                case Fetch(index, encoding, size_bytes, early):
                    self._fetching[index] = encoding
                    self._part[index] = 0.0
                    if not early:
                        self._link.request((self.number, index), size_bytes)
                case CancelFetch(index):
                    self._link.cancel((self.number, index))
                    self._drop(index)
                case Prefill(index):
                    self._prefill = (index, now_s, now_s + self.request.chunks[index].recompute_s)

    def observe(self, arrived: dict[object, float], now_s: float) -> float | None:
        """Tell the session what has happened; return when the first token was there, once it is."""
        start_s = self.request.arrival_s
        for index in list(self._fetching):
            if (self.number, index) in arrived:
                self._arrive(index, arrived[self.number, index], now_s)
        if self._prefill is not None and self._prefill[2] <= now_s:
            index, began_s, ended_s = self._prefill
            self._prefill = None
            self._session.recomputed(index, began_s - start_s, ended_s - start_s)
        while self._decodes and self._decodes[0][2] <= now_s:
            index, began_s, ended_s = self._decodes.pop(0)
            self._session.decoded(index, began_s - start_s, ended_s - start_s)
        self._ask_question(now_s)
        if self._question_ends_s is not None and self._question_ends_s <= now_s:
            return self._question_ends_s
        return None

    def end(self, ended_s: float, refused: str = "") -> VirtualResult:
        """Leave the host, whatever goes on; return how it went."""
        for index in self._fetching:
            self._link.cancel((self.number, index))
        self._cancel_early()
        self._session.leave()
        return VirtualResult(
            ended_s - self.request.arrival_s,
            self._session.chunk_sources,
            round(self._received_bytes),
            self._session.wasted_bytes,
            self._session.link,
            refused,
        )

    def _ask_question(self, now_s: float) -> None:
        if not self._session.done or self._question_ends_s is not None:
            return
        if self._session.begin_after(now_s - self.request.arrival_s):
            self._question_ends_s = now_s + self._costs.question_s

    def _arrive(self, index: int, arrived: float, now_s: float) -> None:
        own_s = now_s - self.request.arrival_s
        self._received_bytes += arrived
        if index not in self._begun:
            self._begun.add(index)
            self._session.first_byte(index, own_s)
        before, self._part[index] = self._part[index], self._part[index] + arrived
        self._session.received(index, round(self._part[index]) - round(before), own_s)
        if self._link.is_whole((self.number, index)):
            encoding = self._fetching[index]
            self._session.fetched(index, own_s)
            self._drop(index)
            seconds = self._costs.decode_s(encoding, self.request.chunks[index].num_tokens)
            self._decodes.append((index, *self._decoder.add(seconds, now_s)))

    def _settle_early(self, *, taken: bool, now_s: float) -> None:
        """Give up what was asked for before the index unless it is taken over; nothing of it has arrived yet."""
        if self._early is not None and not taken:
            self._cancel_early()
            self._session.drop_early(0, now_s - self.request.arrival_s)
        self._early = None

    def _cancel_early(self) -> None:
        if self._early is not None:
            self._link.cancel((self.number, len(self.request.chunks) - 1))

    def _drop(self, index: int) -> None:
        self._begun.discard(index)
        del self._fetching[index], self._part[index]


def log_nothing(event: str, **fields: Any) -> None:
    """Take an event that nobody asked for."""
