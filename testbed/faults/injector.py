"""Injects a plan's faults during a request, each at its moment, and mends what is still broken when it ends."""

import heapq
import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from cachegen import CachegenError
from testbed.faults.base import Fault, Scene
from testbed.faults.plan import PlannedFault


class FaultInjector:
    """A thread for the faults of one request.

    Parameters
    ----------
    plan : sequence of PlannedFault
        What to inject.
    scene : Scene
        What to break.
    origin_s : float
        CLOCK_MONOTONIC moment from which the plan's times count: the request's arrival.
    on_event : callable
        Called with the fields of ``fault`` and ``fault_ended`` events, from the thread.
    seed : str
        Of what is left to chance.
    """

    def __init__(
        self,
        plan: Sequence[PlannedFault],
        scene: Scene,
        origin_s: float,
        on_event: Callable[[dict[str, Any]], None],
        seed: str,
    ) -> None:
        self._scene, self._origin_s, self._on_event, self._seed = scene, origin_s, on_event, seed
        # begins, and the ends of what has begun
        self._agenda: list[tuple[float, int, PlannedFault]] = [
            (fault.start_s, place, fault) for place, fault in enumerate(plan)
        ]
        heapq.heapify(self._agenda)
        self._running: dict[int, tuple[PlannedFault, Fault]] = {}
        self._stopping = threading.Event()
        self._error: CachegenError | OSError | None = None
        self._thread = threading.Thread(target=self._run, name="faults", daemon=True)

    def start(self) -> None:
        """Begin in the background."""
        self._thread.start()

    def stop(self) -> None:
        """Begin nothing more, and mend everything; an error of a fault itself is raised here."""
        self._stopping.set()
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            try:
                self._follow_plan()
            finally:
                for place in sorted(self._running, reverse=True):
                    self._end(place)
        except (CachegenError, OSError) as error:
            self._error = error

    def _follow_plan(self) -> None:
        while self._agenda:
            when_s, place, planned = heapq.heappop(self._agenda)
            if self._stopping.wait(max(0.0, self._origin_s + when_s - time.monotonic())):
                return
            if place in self._running:
                self._end(place)
            else:
                self._begin(place, planned)
        # what has no end of its own lasts as long as the request
        self._stopping.wait()

    def _begin(self, place: int, planned: PlannedFault) -> None:
        fault = planned.make()
        # noted first: what fails half-way is mended too
        self._running[place] = planned, fault
        began_s = self._now_s()
        detail = fault.begin(self._scene, random.Random(f"{self._seed}/{place}"))
        self._say("fault", planned, began_s, detail=detail)
        if planned.duration_s is not None:
            heapq.heappush(self._agenda, (planned.start_s + planned.duration_s, place, planned))

    def _end(self, place: int) -> None:
        planned, fault = self._running.pop(place)
        began_s = self._now_s()
        fault.end(self._scene)
        self._say("fault_ended", planned, began_s)

    def _say(self, event: str, planned: PlannedFault, began_s: float, **fields: Any) -> None:
        self._on_event({"event": event, "fault": planned.text, "t_s": began_s, "done_s": self._now_s(), **fields})

    def _now_s(self) -> float:
        return time.monotonic() - self._origin_s
