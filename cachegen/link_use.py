"""What a load learns of the link while it uses it: round trips, and the rate while something is asked for."""

from dataclasses import dataclass

from cachegen.estimators import ThroughputEstimator

# Silence that is no stall: a server's thinking, a scheduler's hiccup.
_PATIENCE_S = 0.1
# An object is asked for when those on their way will have arrived within a round trip and this.
_MARGIN_S = 0.05
# Over which the rate of arrival is looked at to see when the link runs dry.
_WINDOW_S = 0.5


@dataclass(frozen=True)
class LinkKnowledge:
    """What is known of a link when a load begins, from loads before it.

    Parameters
    ----------
    throughput_bps : float or None
        Mean while it was in use, in bits per second.
    rtt_s : float
        Between asking for an object and its first byte; 0 if unknown.
    """

    throughput_bps: float | None = None
    rtt_s: float = 0.0


class LinkUse:
    """Tells the estimator of every moment in use, and knows when the next request is due.

    Parameters
    ----------
    estimator : ThroughputEstimator
        To be told.
    known : LinkKnowledge
        From before.
    """

    def __init__(self, estimator: ThroughputEstimator, known: LinkKnowledge) -> None:
        self._estimator = estimator
        self.rtt_s = known.rtt_s
        if known.throughput_bps is not None:
            estimator.expect(known.throughput_bps)
        self._used_bytes, self._used_s = 0, 0.0
        self._idle = True
        # Up to when time in use has been accounted for; in the future while an answer cannot be there yet.
        self._seen_s = 0.0
        self._uncounted_bytes = 0
        self._last_end_s = 0.0
        self._recent: list[tuple[float, int]] = []

    @property
    def throughput_bps(self) -> float | None:
        """The estimator's throughput in bits per second; ``None`` before it has one."""
        return self._estimator.bps

    @property
    def knowledge(self) -> LinkKnowledge:
        """What this use has taught."""
        return LinkKnowledge(8 * self._used_bytes / self._used_s if self._used_s else None, self.rtt_s)

    def request(self, now_s: float) -> None:
        """An object is asked for."""
        if self._idle:
            self._idle = False
            # the round trip of the first request says nothing about the rate
            self._seen_s = now_s + 2 * self.rtt_s + _PATIENCE_S
            self._recent.clear()

    def answer(self, now_s: float, waited_s: float) -> None:
        """The first byte of an answer is there, ``waited_s`` after its request."""
        self.rtt_s = min(self.rtt_s, waited_s) if self.rtt_s else waited_s
        self._seen_s = min(self._seen_s, now_s)

    def piece(self, size_bytes: int, now_s: float) -> None:
        """Bytes have arrived."""
        self._recent.append((now_s, size_bytes))
        self._recent = [(at_s, size) for at_s, size in self._recent if at_s > now_s - _WINDOW_S]
        self._account(size_bytes, now_s)

    def wait(self, now_s: float, in_flight: bool) -> None:
        """Nothing has arrived since the last event; is anything in flight?"""
        if in_flight and now_s > self._seen_s + _PATIENCE_S:
            self._account(0, now_s)
        self._idle = not in_flight

    def transfer(self, size_bytes: int, started_s: float, now_s: float, in_flight: bool) -> None:
        """An object is whole, ``started_s`` being when it was asked for."""
        spent_s = now_s - max(started_s, self._last_end_s)
        self._last_end_s = now_s
        if spent_s > 0:
            self._estimator.add_transfer(size_bytes, spent_s)
        self._idle = not in_flight

    def runs_dry(self, missing_bytes: int) -> bool:
        """Whether the link will have delivered all that is on its way before the answer to a request made now."""
        if not missing_bytes:
            return True
        if len(self._recent) < 2:
            return False
        seconds = self._recent[-1][0] - self._recent[0][0]
        arrived = sum(size for _, size in self._recent[1:])
        return missing_bytes * seconds <= arrived * (self.rtt_s + _MARGIN_S)

    def _account(self, size_bytes: int, now_s: float) -> None:
        self._uncounted_bytes += size_bytes
        if now_s > self._seen_s:
            self._estimator.add_piece(self._uncounted_bytes, now_s - self._seen_s)
            self._used_bytes += self._uncounted_bytes
            self._used_s += now_s - self._seen_s
            self._seen_s, self._uncounted_bytes = now_s, 0
