"""How much to ask a store for at once, where each piece of an object costs a round trip."""

import math

# Asked for first: little enough that its time is nearly the round trip's alone.
_FIRST_BYTES = 1 << 16
_FACTOR = 4
# Beyond the round trip, a piece should take about this long: whoever waits for news hears often enough.
_SHORT_S, _LONG_S = 0.1, 0.4
# No round trip: a piece that takes so long is slow, though nothing quicker was seen.
_SLOW_S = 0.5


class PieceSize:
    """Grows while pieces come fast and shrinks where they are slow, so that neither round trips nor silences add up.

    Parameters
    ----------
    most_bytes : int
        The largest piece.

    Attributes
    ----------
    num_bytes : int
        To ask for next.
    """

    def __init__(self, most_bytes: int) -> None:
        self.num_bytes = _FIRST_BYTES
        self._most_bytes, self._quickest_s = most_bytes, math.inf

    def note(self, took_s: float) -> None:
        """Learn how long the last piece took, its round trip included."""
        self._quickest_s = min(self._quickest_s, took_s)
        beyond_s = took_s - self._quickest_s
        if beyond_s < _SHORT_S and took_s < _SLOW_S:
            self.num_bytes = min(self.num_bytes * _FACTOR, self._most_bytes)
        elif beyond_s > _LONG_S:
            self.num_bytes = max(self.num_bytes // _FACTOR, _FIRST_BYTES)
