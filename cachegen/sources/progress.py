"""When a transfer that goes on too slowly is given up."""

from dataclasses import dataclass


@dataclass(frozen=True)
class MinProgress:
    """A transfer must bring ``num_bytes`` within every ``window_s``, or its end.

    The default is far below what any link of use carries, and far above a server that keeps clients waiting by a
    byte now and then.
    """

    num_bytes: int = 8192
    window_s: float = 10.0


class ProgressWatch:
    """Follows one transfer on a clock of the caller's.

    Parameters
    ----------
    rule : MinProgress
        What is demanded.
    now_s : float
        When the transfer began.
    """

    def __init__(self, rule: MinProgress, now_s: float) -> None:
        self._rule, self._in_window_bytes = rule, 0
        self.expires_s = now_s + rule.window_s
        """When the transfer is given up, unless more arrives."""

    def add(self, num_bytes: int, now_s: float) -> None:
        """Count what has arrived; where it is enough, a new window begins."""
        self._in_window_bytes += num_bytes
        if self._in_window_bytes >= self._rule.num_bytes:
            self._in_window_bytes, self.expires_s = 0, now_s + self._rule.window_s
