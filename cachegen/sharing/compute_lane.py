"""The one compute lane of a host: who asks for it, who has it, and until when."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class _Job:
    number: int
    end_s: float


class ComputeLane:
    """Runs one computation at a time; whose turn it is goes by an order that is given, or by the order of asking."""

    def __init__(self) -> None:
        self._running: _Job | None = None
        self._waiting: list[int] = []

    def free_s(self, now_s: float) -> float:
        """When the running computation should end; ``now_s`` if none runs."""
        return now_s if self._running is None else max(now_s, self._running.end_s)

    def runs(self, number: int) -> bool:
        """Whether this load's computation runs."""
        return self._running is not None and self._running.number == number

    def waits(self, number: int) -> bool:
        """Whether this load asks for the lane and has not got it."""
        return number in self._waiting

    def others(self, number: int) -> int:
        """How many other loads use the lane or ask for it."""
        running = [self._running.number] if self._running is not None else []
        return len({*running, *self._waiting} - {number})

    def ask(self, number: int) -> None:
        """Stand in the queue, if not there yet."""
        if number not in self._waiting:
            self._waiting.append(number)

    def is_turn_of(self, number: int, order: Sequence[int] | None) -> bool:
        """Whether a load may begin now: nothing runs, and none asks that comes before it.

        Parameters
        ----------
        number : int
            The load.
        order : sequence of int or None
            All loads, the most urgent first; ``None``: first come, first served.
        """
        if self._running is not None:
            return False
        for other in self._waiting if order is None else order:
            if other == number:
                return True
            if other in self._waiting:
                return False
        return True

    def begin(self, number: int, end_s: float) -> None:
        """A load's computation runs, until about ``end_s``."""
        assert self._running is None, "one computation at a time"
        if number in self._waiting:
            self._waiting.remove(number)
        self._running = _Job(number, end_s)

    def leave(self, number: int) -> None:
        """A load's computation has ended, or it will never ask again."""
        if number in self._waiting:
            self._waiting.remove(number)
        if self.runs(number):
            self._running = None
