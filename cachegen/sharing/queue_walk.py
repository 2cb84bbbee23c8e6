"""A walk along a queue of loads: each is planned behind what those before it put on the link and the compute lane."""

from collections.abc import Sequence
from dataclasses import dataclass

from cachegen.controllers import LoadState
from cachegen.controllers.plan import ConstantRate, Plan, make_plan
from cachegen.sharing.base import HostState, QueuedLoad


@dataclass(frozen=True)
class Planned:
    """A load's plan at its place in the queue.

    Parameters
    ----------
    finish_s : float
        When its context would be in place.
    work_s : float
        Seconds of link and of lane that it takes, added up.
    behind : QueueWalk
        The queue behind it.
    """

    finish_s: float
    work_s: float
    behind: "QueueWalk"


class QueueWalk:
    """A place in the queue.

    Parameters
    ----------
    host : HostState
        Link and lane as they are.
    rate_bps : float or None
        The link's; ``None``: unknown, and nothing is planned but what is decided.
    ahead_bytes : int
        Planned before this place.
    compute_free_s : float, optional
        When the lane has done what is planned before this place; default: when the running computation ends.
    """

    def __init__(
        self, host: HostState, rate_bps: float | None, ahead_bytes: int = 0, compute_free_s: float | None = None
    ) -> None:
        self.host, self.rate_bps, self.ahead_bytes = host, rate_bps, ahead_bytes
        self.compute_free_s = host.compute_free_s if compute_free_s is None else compute_free_s

    def soonest(self, load: QueuedLoad) -> Planned:
        """Plan a load to end as soon as it can, whatever the level."""
        return self._put(load, load.outlook.encodings, self.host.now_s)

    def at_level(self, load: QueuedLoad, place: int) -> Planned:
        """Plan a load at one level of its ladder, the coarsest if that has fewer."""
        ladder = load.outlook.encodings
        place = min(place, len(ladder) - 1)
        return self._put(load, ladder[place : place + 1], self.host.now_s)

    def in_time(self, load: QueuedLoad, finest: int, target_s: float) -> Planned:
        """Plan a load at the finest level from ``finest`` on that holds ``target_s``."""
        ladder = load.outlook.encodings
        return self._put(load, ladder[min(finest, len(ladder) - 1) :] if ladder else (), target_s)

    def _put(self, load: QueuedLoad, ladder: Sequence[str], target_s: float) -> Planned:
        host, outlook = self.host, load.outlook
        lane_s = self.compute_free_s + outlook.compute_s
        if self.rate_bps is None:
            behind = QueueWalk(host, None, self.ahead_bytes, lane_s + outlook.after_s)
            return Planned(lane_s, outlook.compute_s + outlook.after_s, behind)
        state = LoadState(
            elapsed_s=host.now_s,
            deadline_s=load.deadline_s,
            remaining=outlook.remaining,
            throughput_bps=self.rate_bps,
            flying_bytes=host.flying_bytes,
            ahead_bytes=self.ahead_bytes,
            rtt_s=0.0 if host.flying_bytes else host.rtt_s,
            compute_free_s=lane_s,
            computed_s=lane_s if outlook.compute_s else host.now_s,
        )
        link = ConstantRate(self.rate_bps)
        plan = make_plan(state, ladder, link, target_s)
        own_bytes, own_s = _needs(state, plan)
        # its own bytes on their way arrive among those of others
        arrived_s = link.arrival_s(host.now_s, host.flying_bytes if load.flying_bytes else 0)
        finish_s = max(plan.finish_s, arrived_s)
        computing_s = outlook.compute_s + own_s + outlook.after_s
        link_s = 8 * own_bytes / self.rate_bps if own_bytes else 0.0
        behind = QueueWalk(host, self.rate_bps, self.ahead_bytes + own_bytes, self.compute_free_s + computing_s)
        return Planned(finish_s, link_s + computing_s, behind)


def _needs(state: LoadState, plan: Plan) -> tuple[int, float]:
    """Bytes and seconds of prefill that a plan takes."""
    pairs = list(zip(state.remaining, plan.names, strict=True))
    own_bytes = sum(chunk.sizes_bytes[name] for chunk, name in pairs if name is not None)
    return own_bytes, sum(chunk.recompute_s for chunk, name in pairs if name is None)
