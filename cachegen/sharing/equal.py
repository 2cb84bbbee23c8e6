"""Equal sharing: each load does as if it were alone, TCP divides the link, and the compute lane goes round."""

from collections.abc import Sequence

from cachegen.controllers import LoadState
from cachegen.controllers.plan import ConstantRate, make_plan
from cachegen.sharing.base import HostState, QueuedLoad, Turn


class EqualSharing:
    """What loads get where nobody divides: a share of the link that they can but measure."""

    one_queue = False

    def arrange(self, loads: Sequence[QueuedLoad], host: HostState) -> list[Turn]:
        """Turns in the order of coming, nobody's bytes ahead; a load is late if an equal share is too little."""
        rate_bps = _equal_share_bps(loads)
        turns = []
        for load in sorted(loads, key=lambda load: load.number):
            finish_s = None if rate_bps is None else _finish_s(load, len(loads), rate_bps, host)
            late = finish_s is not None and finish_s > load.deadline_s
            turns.append(Turn(load.number, 0, host.compute_free_s, 0, finish_s, late))
        return turns


def _equal_share_bps(loads: Sequence[QueuedLoad]) -> float | None:
    """What each would get of all that is seen to arrive."""
    busy = [load.throughput_bps for load in loads if load.throughput_bps and load.flying_bytes]
    if busy:
        return sum(busy) / len(loads)
    return max((load.throughput_bps / len(loads) for load in loads if load.throughput_bps), default=None)


def _finish_s(load: QueuedLoad, sharers: int, rate_bps: float, host: HostState) -> float:
    """The soonest end with an equal part of everything; what has to be recomputed takes as many times as long."""
    own_s = host.compute_free_s + sharers * load.outlook.compute_s
    state = LoadState(
        elapsed_s=host.now_s,
        deadline_s=load.deadline_s,
        # a part of the lane: the deadline is kept, so the clock of the lane runs slower
        remaining=tuple(chunk.slowed(sharers) for chunk in load.outlook.remaining),
        throughput_bps=rate_bps,
        flying_bytes=load.flying_bytes,
        rtt_s=host.rtt_s,
        compute_free_s=own_s,
    )
    return make_plan(state, load.outlook.encodings, ConstantRate(rate_bps), host.now_s).finish_s
