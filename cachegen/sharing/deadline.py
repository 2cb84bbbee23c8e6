"""Sharing by deadline: the most urgent load is served first, and those that are lost stand behind those that are not.

Earliest deadline first is the best order while all deadlines can be held, and the worst beyond: each load is then
served just too late, one pulling the next down. So loads are looked at as in Moore's algorithm for the fewest late
jobs (Management Science 15, 1968): in the order of deadlines, and whenever one would be late, the load with the most
work so far is set behind all others. What cannot hold its deadline even alone is set there first.

The levels are a common matter too. A load that fills its own time with the finest one takes it from those behind it;
so all take none finer than one with which everybody holds the deadline with time to spare.
"""

from collections.abc import Sequence

from cachegen.controllers.meet import SAFE_SHARE
from cachegen.sharing.base import HostState, QueuedLoad, Turn
from cachegen.sharing.queue_walk import Planned, QueueWalk


class DeadlineSharing:
    """One queue for the link and one for the compute lane, in the order of deadlines."""

    one_queue = True

    def arrange(self, loads: Sequence[QueuedLoad], host: HostState) -> list[Turn]:
        """Turns by deadline, late loads last; see the module."""
        ordered = sorted(loads, key=lambda load: (load.deadline_s, load.number))
        rate_bps = next((load.throughput_bps for load in ordered), None)
        start = QueueWalk(host, rate_bps)
        if rate_bps is None:
            return _turns(start, ordered, finest=0)
        kept, late = _without_late(ordered, start)
        return _turns(start, kept, _common_finest(kept, start), late)


def _without_late(ordered: Sequence[QueuedLoad], start: QueueWalk) -> tuple[list[QueuedLoad], list[QueuedLoad]]:
    """Those that can hold their deadlines together, and the others; both by deadline."""
    kept: list[tuple[QueuedLoad, Planned]] = []
    for load in ordered:
        if start.soonest(load).finish_s > load.deadline_s:
            continue
        kept.append((load, _last(kept, start).soonest(load)))
        while (place := _first_late(kept)) is not None:
            most = max(range(place + 1), key=lambda at: kept[at][1].work_s)
            behind = [load for load, _ in kept[most + 1 :]]
            del kept[most:]
            for other in behind:
                kept.append((other, _last(kept, start).soonest(other)))
    numbers = {load.number for load, _ in kept}
    return [load for load, _ in kept], [load for load in ordered if load.number not in numbers]


def _last(kept: Sequence[tuple[QueuedLoad, Planned]], start: QueueWalk) -> QueueWalk:
    return kept[-1][1].behind if kept else start


def _first_late(kept: Sequence[tuple[QueuedLoad, Planned]]) -> int | None:
    return next((at for at, (load, planned) in enumerate(kept) if planned.finish_s > load.deadline_s), None)


def _common_finest(kept: Sequence[QueuedLoad], start: QueueWalk) -> int:
    """The finest level that all can take and hold their deadlines with time to spare; the coarsest if there is none."""
    if len(kept) < 2:  # nobody behind
        return 0
    coarsest = max((len(load.outlook.encodings) for load in kept), default=0) - 1
    for place in range(coarsest):
        walk = start
        for load in kept:
            planned = walk.at_level(load, place)
            if planned.finish_s > _target_s(load, start):
                break
            walk = planned.behind
        else:
            return place
    return max(0, coarsest)


def _target_s(load: QueuedLoad, start: QueueWalk) -> float:
    now_s = start.host.now_s
    return now_s + SAFE_SHARE * max(0.0, load.deadline_s - now_s)


def _turns(start: QueueWalk, kept: Sequence[QueuedLoad], finest: int, late: Sequence[QueuedLoad] = ()) -> list[Turn]:
    walk, turns = start, []
    for load in (*kept, *late):
        planned = walk.in_time(load, finest, _target_s(load, start))
        turns.append(
            Turn(
                load.number,
                walk.ahead_bytes,
                walk.compute_free_s,
                finest,
                None if start.rate_bps is None else planned.finish_s,
                load in late,
            )
        )
        walk = planned.behind
    return turns
