"""One link and one compute lane, and the loads that share them, each by a seat of its own."""

from collections.abc import Callable
from dataclasses import dataclass, field

from cachegen.errors import AdmissionError
from cachegen.estimators import ThroughputEstimator
from cachegen.link_use import LinkKnowledge, LinkUse
from cachegen.sharing.base import HostState, Outlook, QueuedLoad, SharingPolicy, Turn
from cachegen.sharing.compute_lane import ComputeLane

# The order of loads is thought over when one of them has got further, and as often as this.
_ARRANGE_S = 0.1


@dataclass(frozen=True)
class HostLimits:
    """What all loads of a host together may have going at once; bounds the memory besides their caches.

    Parameters
    ----------
    in_flight : int
        Objects on their way.
    undecoded : int
        Objects that have arrived and wait for their decode.
    """

    in_flight: int = 64
    undecoded: int = 16


@dataclass(eq=False)
class Seat:
    """One load's access to what it shares; times are the load's own, seconds since its arrival.

    Made by :meth:`SharedHost.join`; whatever ends the load, :meth:`leave` has to be called.
    """

    host: "SharedHost"
    number: int
    arrival_s: float
    deadline_s: float
    link: LinkUse
    outlook: Callable[[], Outlook]
    missing_bytes: dict[int, int] = field(default_factory=dict)
    undecoded: int = 0
    # Whether it would take a fetch; a load that has not been asked is thought to.
    wants_fetch: bool = True

    def request(self, index: int, size_bytes: int, now_s: float) -> None:
        """An object is asked for."""
        self.missing_bytes[index] = size_bytes
        self.wants_fetch = True
        self.link.request((self.number, index), self._at(now_s))
        self.host.changed()

    def answer(self, index: int, now_s: float) -> None:
        """The first byte of an answer is there."""
        self.link.answer((self.number, index), self._at(now_s))

    def piece(self, index: int, num_bytes: int, now_s: float) -> None:
        """Bytes of an object have arrived."""
        self.missing_bytes[index] -= num_bytes
        self.link.piece(num_bytes, self._at(now_s))

    def landed(self, index: int, now_s: float) -> None:
        """An object is whole."""
        del self.missing_bytes[index]
        self.undecoded += 1
        self.link.whole((self.number, index), self._at(now_s))
        self.host.changed()

    def dropped(self, index: int) -> None:
        """An object does not come, or was given up."""
        del self.missing_bytes[index]
        self.link.ended((self.number, index))
        self.host.changed()

    def decoded(self) -> None:
        """An object that had landed is decoded, or cannot be."""
        self.undecoded -= 1
        self.host.changed()

    def silence(self, now_s: float) -> None:
        """Nothing else has happened on the link so far."""
        self.link.silence(self._at(now_s))

    def may_fetch(self, now_s: float, *, can: bool) -> bool:
        """Whether the next fetch may be this load's; ``can``: whether it could."""
        if not can:
            self.wants_fetch = False
        return can and self.host.may_fetch(self, self._at(now_s))

    def declined(self) -> None:
        """The load might have fetched, and would not."""
        self.wants_fetch = False

    @property
    def queued(self) -> bool:
        """Whether the load would go on if it were alone."""
        waits_for_link = self.host.one_queue and self.wants_fetch and not self.missing_bytes and self.host.is_shared
        return self.host.lane.waits(self.number) or waits_for_link

    def turn(self, now_s: float) -> Turn:
        """The load's place in the order of all."""
        return self.host.turn_of(self, self._at(now_s))

    def since_arrival_s(self, host_s: float) -> float:
        """A moment of the host's clock on the load's own."""
        return host_s - self.arrival_s

    def flying_bytes(self) -> int:
        """Bytes on their way for other loads, through the same queue."""
        return self.host.flying_bytes() - sum(self.missing_bytes.values()) if self.host.one_queue else 0

    def slowdown(self) -> int:
        """How many times as long recomputation takes, because others take turns with it."""
        return 1 if self.host.one_queue else 1 + self.host.lane.others(self.number)

    def may_begin(self, now_s: float) -> bool:
        """Whether a computation of this load could begin now."""
        return self.host.is_turn_of(self, self._at(now_s))

    def may_decide_to_compute(self, now_s: float) -> bool:
        """Whether it is time to decide for one: by deadline not sooner than it can begin, as more is known then."""
        return not self.host.one_queue or self.may_begin(now_s)

    def ask_lane(self) -> None:
        """The load has something to compute."""
        self.host.lane.ask(self.number)

    def begin(self, seconds: float, now_s: float) -> None:
        """A computation begins."""
        self.host.lane.begin(self.number, self._at(now_s) + seconds)
        self.host.changed()

    def end(self) -> None:
        """The computation has ended, or is not wanted any more."""
        self.host.lane.leave(self.number)
        self.host.changed()

    def running_until_s(self, now_s: float) -> float | None:
        """When the load's own running computation should end; ``None`` if none runs."""
        lane = self.host.lane
        return self.since_arrival_s(lane.free_s(self._at(now_s))) if lane.runs(self.number) else None

    def admit(self, now_s: float) -> None:
        """Refuse the load, which has just come, if its deadline cannot hold: see :meth:`SharedHost.admit`."""
        self.host.admit(self, self._at(now_s))

    def leave(self) -> None:
        """Nothing of this load goes on; may be called twice."""
        self.host.remove(self)

    def _at(self, own_s: float) -> float:
        return self.arrival_s + own_s


class SharedHost:
    """What the loads of one host share.

    Parameters
    ----------
    policy : SharingPolicy
        Divides it.
    limits : HostLimits, optional
        Over all loads; default: none beyond each load's own.
    """

    def __init__(self, policy: SharingPolicy, limits: HostLimits | None = None) -> None:
        self._policy, self._limits = policy, limits
        self.lane = ComputeLane()
        self._seats: dict[int, Seat] = {}
        # on their way for loads that have not joined yet
        self.early_objects = 0
        self._link: LinkUse | None = None
        self._joined = 0
        self._turns: dict[int, Turn] = {}
        self._arranged_s: float | None = None

    @property
    def one_queue(self) -> bool:
        """See :class:`SharingPolicy`."""
        return self._policy.one_queue

    @property
    def is_shared(self) -> bool:
        """Whether there is more than one load."""
        return len(self._seats) > 1

    def join(
        self,
        outlook: Callable[[], Outlook],
        estimator: ThroughputEstimator,
        known: LinkKnowledge,
        arrival_s: float,
        deadline_s: float,
    ) -> Seat:
        """Take in a load.

        Parameters
        ----------
        outlook : callable
            Says what the load has before it.
        estimator, known
            The load's notion of the link; where all share one, that of the first load.
        arrival_s : float
            The load's, on the host's clock.
        deadline_s : float
            When its context should be in place, seconds after its arrival.
        """
        link = LinkUse(estimator, known) if self._link is None else self._link
        if self.one_queue:
            self._link = link
        seat = Seat(self, self._joined, arrival_s, deadline_s, link, outlook)
        self._seats[seat.number] = seat
        self._joined += 1
        self.changed()
        return seat

    def remove(self, seat: Seat) -> None:
        """Forget a load."""
        if self._seats.pop(seat.number, None) is not None:
            self.lane.leave(seat.number)
            self.changed()

    def changed(self) -> None:
        """Something has happened that the order of loads may depend on."""
        self._arranged_s = None

    def flying_bytes(self) -> int:
        """Bytes on their way, for all loads."""
        return sum(sum(seat.missing_bytes.values()) for seat in self._seats.values())

    def link_runs_dry(self, now_s: float) -> bool:
        """Whether a fetch is due at a link that is one queue."""
        return self._link is not None and self._link.runs_dry(self.flying_bytes(), now_s)

    def may_fetch(self, seat: Seat, now_s: float) -> bool:
        """Whether the next fetch may be this load's: the link would run dry, and no more urgent one wants it."""
        seats = self._seats.values()
        if self._limits is not None and (
            sum(len(other.missing_bytes) for other in seats) + self.early_objects >= self._limits.in_flight
            or sum(other.undecoded for other in seats) >= self._limits.undecoded
        ):
            return False
        if not self.one_queue:
            unknown = seat.link.bytes_per_s is None
            return unknown or seat.link.runs_dry(sum(seat.missing_bytes.values()), now_s)
        if not self.link_runs_dry(now_s):
            return False
        self._arrange(now_s)
        first = next((number for number in self._turns if self._seats[number].wants_fetch), seat.number)
        return first == seat.number

    def turn_of(self, seat: Seat, now_s: float) -> Turn:
        """A load's place in the order."""
        self._arrange(now_s)
        return self._turns[seat.number]

    def is_turn_of(self, seat: Seat, now_s: float) -> bool:
        """Whether the compute lane would take this load's computation now."""
        if self.one_queue:
            self._arrange(now_s)
        return self.lane.is_turn_of(seat.number, list(self._turns) if self.one_queue else None)

    def admit(self, seat: Seat, now_s: float) -> None:
        """Look whether a load that has just come can hold its deadline, and leaves the others theirs.

        Raises
        ------
        AdmissionError
            No; the text says when it would end.
        """
        queue, state = self._queue(), self._state(now_s)
        turns = self._policy.arrange(queue, state)
        before = self._policy.arrange([load for load in queue if load.number != seat.number], state)
        own = next(turn for turn in turns if turn.number == seat.number)
        finish_s = None if own.finish_s is None else seat.since_arrival_s(own.finish_s)
        if own.late and finish_s is not None:
            raise AdmissionError(
                f"the context would be in place {finish_s:.2f} s after the request's arrival; its deadline is at "
                f"{seat.deadline_s:.2f} s"
            )
        late = sum(turn.late for turn in turns) - sum(turn.late for turn in before)
        if late > 0 and finish_s is not None:
            raise AdmissionError(
                f"the context could be in place {finish_s:.2f} s after the request's arrival, before its deadline at "
                f"{seat.deadline_s:.2f} s, but {late} load of those admitted before would then miss its own"
            )

    def _arrange(self, now_s: float) -> None:
        if self._arranged_s is None or not 0 <= now_s - self._arranged_s < _ARRANGE_S:
            turns = self._policy.arrange(self._queue(), self._state(now_s))
            self._turns = {turn.number: turn for turn in turns}
            self._arranged_s = now_s

    def _queue(self) -> list[QueuedLoad]:
        return [
            QueuedLoad(
                number=seat.number,
                deadline_s=seat.arrival_s + seat.deadline_s,
                flying_bytes=sum(seat.missing_bytes.values()),
                throughput_bps=seat.link.throughput_bps,
                outlook=seat.outlook(),
            )
            for seat in self._seats.values()
        ]

    def _state(self, now_s: float) -> HostState:
        links = [seat.link for seat in self._seats.values()]
        rtts_s = [link.rtt_s for link in links if link.rtt_s]
        return HostState(now_s, min(rtts_s, default=0.0), self.flying_bytes(), self.lane.free_s(now_s))
