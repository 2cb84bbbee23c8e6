"""How long a load goes on hoping for its store: not for ever, whatever its controller says.

A controller chooses among ways that it believes in; the baselines believe in the store whatever happens. What is
decided here is when nobody should: the store is silent, or so slow after the deadline that recomputing what is missing
ends sooner.
"""

import math
from collections import deque

from cachegen.recompute_cost import IMPOSSIBLE_S


class Patience:
    """Follows the store's signs of life during one load, and knows when to go on without it.

    Parameters
    ----------
    limit_s : float
        How long the store may be silent, how long after the deadline it is waited for, and how far back its rate is
        looked at; infinite: it is waited for for ever.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._began_s: float | None = None
        self._silent_from_s: float | None = None
        # seconds in which something was waited for, up to the last sign of life; when on that clock what bytes came
        self._waited_s = 0.0
        self._pieces: deque[tuple[float, int]] = deque()
        self._recent_bytes = 0
        self._last_call_s: float | None = None

    def asked(self, now_s: float) -> None:
        """Something was asked for."""
        if self._began_s is None:
            self._began_s = now_s
        if self._silent_from_s is None:
            self._silent_from_s = now_s

    def heard(self, now_s: float, waiting: bool, num_bytes: int = 0) -> None:
        """The store has given a sign of life, perhaps bytes; is more being waited for?"""
        # what came before anybody waited for it came at once
        if self._silent_from_s is not None:
            now_s = max(now_s, self._silent_from_s)
        self._waited_s += self._silence_s(now_s)
        self._silent_from_s = now_s if waiting else None
        if num_bytes and self._limit_s < math.inf:
            self._pieces.append((self._waited_s, num_bytes))
            self._recent_bytes += num_bytes
            self._forget(self._waited_s)

    def verdict(self, now_s: float, deadline_s: float, recompute_s: float, missing_bytes: int) -> str:
        """Return why nothing more should be expected of the store, or nothing.

        Parameters
        ----------
        now_s, deadline_s : float
            On one clock.
        recompute_s : float
            What recomputing all that is missing takes.
        missing_bytes : int
            What the store would still have to bring, at the least.
        """
        if self._began_s is None or recompute_s >= IMPOSSIBLE_S:
            return ""
        silent_s = self._silence_s(now_s)
        # before the deadline only if that saves it: the link may come back in time, recomputation cannot
        if silent_s >= self._limit_s and (now_s >= deadline_s or now_s + recompute_s <= deadline_s):
            return f"silent for {silent_s:.1f} s"
        late_s = now_s - max(deadline_s, self._began_s)
        if late_s < self._limit_s:
            return ""
        # a link that promises to be sooner than recomputing is held to that, whatever it promises later
        if self._last_call_s is None:
            self._last_call_s = now_s + recompute_s
        bytes_per_s = self._bytes_per_s(now_s)
        if now_s < self._last_call_s and missing_bytes <= bytes_per_s * recompute_s:
            return ""
        return f"{late_s:.1f} s after the deadline {missing_bytes} bytes are missing, at {bytes_per_s:.0f} bytes/s"

    def _silence_s(self, now_s: float) -> float:
        return 0.0 if self._silent_from_s is None else now_s - self._silent_from_s

    def _bytes_per_s(self, now_s: float) -> float:
        """The rate over the last ``limit_s`` of waiting: after a collapse, that of the link as it has become."""
        waited_s = self._waited_s + self._silence_s(now_s)
        self._forget(waited_s)
        return self._recent_bytes / min(waited_s, self._limit_s) if waited_s else 0.0

    def _forget(self, waited_s: float) -> None:
        while self._pieces and self._pieces[0][0] <= waited_s - self._limit_s:
            self._recent_bytes -= self._pieces.popleft()[1]
