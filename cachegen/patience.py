"""How long a load goes on hoping for its store: not for ever, whatever its controller says.

A controller chooses among ways that it believes in; the baselines believe in the store whatever happens. What is
decided here is when nobody should: the store is silent, or so slow long after the deadline that recomputing what is
missing ends sooner.
"""

# A store that is late and alive is left to go on unless recomputing is as many times as quick.
_MUCH_SOONER = 4.0


class Patience:
    """Follows the store's signs of life during one load, and knows when to go on without it.

    Parameters
    ----------
    limit_s : float
        How long the store may be silent, and how long after the deadline it is waited for; infinite: for ever.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._began_s: float | None = None
        self._silent_from_s: float | None = None

    def asked(self, now_s: float) -> None:
        """Something was asked for."""
        if self._began_s is None:
            self._began_s = now_s
        if self._silent_from_s is None:
            self._silent_from_s = now_s

    def heard(self, now_s: float, waiting: bool) -> None:
        """The store has given a sign of life; is more being waited for?"""
        self._silent_from_s = now_s if waiting else None

    def verdict(self, now_s: float, deadline_s: float, recompute_s: float, link_s: float | None) -> str:
        """Return why nothing more should be expected of the store, or nothing.

        Parameters
        ----------
        now_s, deadline_s : float
            On one clock.
        recompute_s : float
            What recomputing all that is missing takes.
        link_s : float or None
            What its arrival takes at the rate of this load so far; ``None``: nothing has arrived.
        """
        if self._began_s is None:
            return ""
        silent_s = 0.0 if self._silent_from_s is None else now_s - self._silent_from_s
        # before the deadline only if that saves it: the link may come back in time, recomputation cannot
        if silent_s >= self._limit_s and (now_s >= deadline_s or now_s + recompute_s <= deadline_s):
            return f"silent for {silent_s:.1f} s"
        late_s = now_s - max(deadline_s, self._began_s)
        if late_s >= self._limit_s and (link_s is None or link_s > _MUCH_SOONER * recompute_s):
            return f"{late_s:.1f} s after the deadline recomputing ends sooner"
        return ""
