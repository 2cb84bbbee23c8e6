"""What a load learns of the link while it uses it: round trips, and the rate while something is asked for."""

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass

from cachegen.estimators import ThroughputEstimator

# Silence that is no stall: a server's thinking, a scheduler's hiccup.
_PATIENCE_S = 0.1
# An object is asked for so long before the store will have sent all that was asked for: event loop and store take
# their time. The longer, the more objects share the link; the first then comes late, and its decoding with it.
_MARGIN_S = 0.04
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
    last_chunk : str or None
        Encoding that the load before chose for its last chunk; ``None`` if it did not stream that.
    """

    throughput_bps: float | None = None
    rtt_s: float = 0.0
    last_chunk: str | None = None


class LinkUse:
    """Tells the estimator of every moment in use, and knows when the next request is due.

    The link is in use while an answer arrives, and while one is overdue. The round trip before an answer says nothing
    about the rate.

    Parameters
    ----------
    estimator : ThroughputEstimator
        To be told.
    known : LinkKnowledge
        From before.

    Attributes
    ----------
    rtt_s : float
        The shortest seen.
    bytes_per_s : float or None
        The rate of the last pieces, before there were two the known one; ``None`` without either.
    """

    def __init__(self, estimator: ThroughputEstimator, known: LinkKnowledge) -> None:
        self._estimator = estimator
        self.rtt_s = known.rtt_s
        if known.throughput_bps is not None:
            estimator.expect(known.throughput_bps)
        self._used_bytes, self._used_s = 0, 0.0
        # objects on their way: when each was asked for, and what had arrived of all objects by then
        self._requests: dict[Hashable, tuple[float, int]] = {}
        # since when something is
        self._asked_since_s = 0.0
        self._arriving: set[Hashable] = set()
        self._arrived_bytes = 0
        # up to when time in use has been accounted for
        self._seen_s = 0.0
        self._uncounted_bytes = 0
        self._recent: deque[tuple[float, int]] = deque()
        # of all recent pieces but the first, whose time is not known
        self._recent_bytes = 0
        self.bytes_per_s = None if known.throughput_bps is None else known.throughput_bps / 8

    @property
    def throughput_bps(self) -> float | None:
        """The estimator's throughput in bits per second; ``None`` before it has one."""
        return self._estimator.bps

    @property
    def estimator_name(self) -> str:
        """Whose throughput that is."""
        return self._estimator.name

    @property
    def knowledge(self) -> LinkKnowledge:
        """What this use has taught."""
        return LinkKnowledge(8 * self._used_bytes / self._used_s if self._used_s else None, self.rtt_s)

    def request(self, key: Hashable, now_s: float) -> None:
        """An object is asked for."""
        if not self._requests:
            self._asked_since_s = now_s
        self._requests[key] = now_s, self._arrived_bytes

    def answer(self, key: Hashable, now_s: float) -> None:
        """The first byte of an answer is there."""
        waited_s = now_s - self._requests[key][0]
        self.rtt_s = min(self.rtt_s, waited_s) if self.rtt_s else waited_s
        if not self._arriving:
            self._seen_s = now_s
            self._recent.clear()
            self._recent_bytes = 0
        self._arriving.add(key)

    def piece(self, size_bytes: int, now_s: float) -> None:
        """Bytes have arrived."""
        self._arrived_bytes += size_bytes
        if self._recent:
            self._recent_bytes += size_bytes
        self._recent.append((now_s, size_bytes))
        while len(self._recent) > 1 and self._recent[0][0] <= now_s - _WINDOW_S:
            self._recent.popleft()
            self._recent_bytes -= self._recent[0][1]
        seconds = now_s - self._recent[0][0]
        if seconds > 0:
            self.bytes_per_s = self._recent_bytes / seconds
        self._account(size_bytes, now_s)

    def silence(self, now_s: float) -> None:
        """Nothing has arrived since the last event: a stall, if that lasts while something should."""
        if not self._requests:
            return
        since_s = self._seen_s
        if not self._arriving:
            asked_s = min(asked_s for asked_s, _ in self._requests.values())
            since_s = max(since_s, asked_s + 2 * self.rtt_s)
        if now_s > since_s + _PATIENCE_S:
            self._seen_s = since_s
            self._account(0, now_s)

    def whole(self, key: Hashable, now_s: float) -> None:
        """An object has arrived; what the link brought meanwhile, of this and of others, is its throughput."""
        asked_s, before_bytes = self._requests[key]
        self.ended(key)
        if now_s > asked_s:
            self._estimator.add_transfer(self._arrived_bytes - before_bytes, now_s - asked_s)

    def ended(self, key: Hashable) -> None:
        """An object is no longer on its way."""
        del self._requests[key]
        self._arriving.discard(key)

    def runs_dry(self, missing_bytes: int, now_s: float) -> bool:
        """Whether the store will have sent all that it was asked for by the time that a request made now is there.

        Of the missing bytes a round trip's worth has left it already, once the first request is as old. So objects
        follow each other closely and do not share the link: what is decoded first comes first.
        """
        sent_s = min(self.rtt_s, now_s - self._asked_since_s)
        return missing_bytes <= (self.bytes_per_s or 0.0) * (sent_s + _MARGIN_S)

    def _account(self, size_bytes: int, now_s: float) -> None:
        self._uncounted_bytes += size_bytes
        if now_s > self._seen_s:
            self._estimator.add_piece(self._uncounted_bytes, now_s - self._seen_s)
            self._used_bytes += self._uncounted_bytes
            self._used_s += now_s - self._seen_s
            self._seen_s, self._uncounted_bytes = now_s, 0
