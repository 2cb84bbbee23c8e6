"""A link on a virtual clock: exactly the trace's capacity, shared equally by all that is being sent."""

import math
from bisect import bisect_left, bisect_right

import numpy as np

from testbed.trace import BYTES_PER_MBIT, Trace, replayed_mbps

# Of a full Ethernet frame of 1,514 bytes, what TCP with timestamps carries: 1,448.
PAYLOAD_SHARE = 1448 / 1514


class LinkFuture:
    """What a link will deliver from a place of its trace on: a :class:`cachegen.LinkForecast`.

    Parameters
    ----------
    trace : Trace
        The link's.
    offset_s : float
        Where in the trace time 0 lies.
    """

    def __init__(self, trace: Trace, offset_s: float) -> None:
        rates = np.array([replayed_mbps(rate) for rate in trace.rates_mbps]) * BYTES_PER_MBIT * PAYLOAD_SHARE
        edges = np.array([*trace.times_s, trace.period_s])
        self._edges_s: list[float] = edges.tolist()
        self._sums: list[float] = np.concatenate([[0.0], np.cumsum(rates * np.diff(edges))]).tolist()
        self._period_s, self._offset_s = trace.period_s, offset_s
        self._offset_bytes = self._sum_at(offset_s)

    def delivered_bytes(self, time_s: float) -> float:
        """Bytes that the link can have delivered by ``time_s``, from time 0 on."""
        return self._sum_at(self._offset_s + time_s) - self._offset_bytes

    def arrival_s(self, start_s: float, size_bytes: float) -> float:
        """When as many bytes have arrived if they begin to flow at ``start_s``."""
        if size_bytes <= 0:
            return start_s
        wanted = self._sum_at(self._offset_s + start_s) + size_bytes
        periods, rest = divmod(wanted, self._sums[-1])
        place = max(1, bisect_left(self._sums, rest))
        low, high = self._sums[place - 1], self._sums[place]
        first_s, last_s = self._edges_s[place - 1], self._edges_s[place]
        # an outage at the very beginning: what is wanted is there already
        share = (rest - low) / (high - low) if high > low else 0.0
        into_s = first_s + (last_s - first_s) * share
        return max(start_s, periods * self._period_s + into_s - self._offset_s)

    def _sum_at(self, time_s: float) -> float:
        periods, rest_s = divmod(time_s, self._period_s)
        place = min(bisect_right(self._edges_s, rest_s), len(self._edges_s) - 1)
        low, high = self._sums[place - 1], self._sums[place]
        first_s, last_s = self._edges_s[place - 1], self._edges_s[place]
        return periods * self._sums[-1] + low + (high - low) * (rest_s - first_s) / (last_s - first_s)


class VirtualLink:
    """Transfers over one link, served alike; time moves by :meth:`advance`.

    Parameters
    ----------
    future : LinkFuture
        What the link can carry.
    rtt_s : float
        Between a request and its answer's first byte.
    """

    def __init__(self, future: LinkFuture, rtt_s: float) -> None:
        self._future, self._rtt_s = future, rtt_s
        self._now_s = 0.0
        self._missing: dict[object, float] = {}
        self._flows_from_s: dict[object, float] = {}

    def request(self, key: object, size_bytes: int, asked_s: float | None = None) -> None:
        """Ask for an object; it begins to arrive a round trip from ``asked_s``, by default from now."""
        self._missing[key] = float(size_bytes)
        self._flows_from_s[key] = (self._now_s if asked_s is None else asked_s) + self._rtt_s

    def cancel(self, key: object) -> None:
        """Give an object up."""
        self._missing.pop(key, None)
        self._flows_from_s.pop(key, None)

    def advance(self, now_s: float) -> dict[object, float]:
        """Move time on; return the bytes that arrived of each object that anything arrived of."""
        capacity = self._future.delivered_bytes(now_s) - self._future.delivered_bytes(self._now_s)
        self._now_s = now_s
        arrived: dict[object, float] = {}
        flowing = [key for key in self._missing if self._flows_from_s[key] < now_s]
        # the ones with the least to come end first and leave their share to the rest
        for place, key in enumerate(sorted(flowing, key=self._missing.__getitem__)):
            share = min(self._missing[key], capacity / (len(flowing) - place))
            capacity -= share
            self._missing[key] -= share
            arrived[key] = share
            if math.isclose(self._missing[key], 0.0, abs_tol=1e-6):
                self.cancel(key)
        return arrived

    def is_whole(self, key: object) -> bool:
        """Whether nothing of an object that was asked for is still to come."""
        return key not in self._missing
