"""The lower of two running averages of what arrives, a quick and a slow one: falls at once, rises with care.

The quick average sees a collapse in the middle of an object; the slow one does not forget, for one good moment, what
the link did before it. Both are weighted by time in use and corrected for their start from nothing, so that the first
tenths of a second count in full. (The pair is known from video players, which take the lower for the same reason.)
"""

import math

from cachegen.estimators.base import check_observation

QUICK_HALF_LIFE_S = 0.25
SLOW_HALF_LIFE_S = 2.0
# Time in use before which nothing is said: the first packets of a connection say little about a link.
LEAST_S = 0.1


class TwoSpeedEstimator:
    """The lower of a quick and a slow exponential average over the time in use."""

    name = "two-speed"

    def __init__(self) -> None:
        self._averages = (_Average(QUICK_HALF_LIFE_S), _Average(SLOW_HALF_LIFE_S))
        self._seconds = 0.0
        self._known = False

    @property
    def bps(self) -> float | None:
        """Bits per second; ``None`` before a whole object or a tenth of a second in use."""
        if not self._known or not self._seconds:
            return None
        return min(average.value for average in self._averages)

    def expect(self, bps: float) -> None:
        """Take it for the first tenth of a second in use."""
        self._add(bps * LEAST_S, LEAST_S)

    def add_piece(self, size_bytes: int, seconds: float) -> None:
        """Take bytes into both averages.

        Raises
        ------
        InvalidInputError
            Less than no bytes, or no time.
        """
        check_observation(size_bytes, seconds)
        self._add(8 * size_bytes, seconds)

    def add_transfer(self, size_bytes: int, seconds: float) -> None:
        """Take it that the rate is known; the pieces are.

        Raises
        ------
        InvalidInputError
            Less than no bytes, or no time.
        """
        check_observation(size_bytes, seconds)
        self._known = True

    def _add(self, bits: float, seconds: float) -> None:
        self._seconds += seconds
        self._known = self._known or self._seconds >= LEAST_S
        for average in self._averages:
            average.add(bits, seconds)


class _Average:
    """Rate of an amount over time, older time weighing half with each half-life."""

    def __init__(self, half_life_s: float) -> None:
        self._half_life_s = half_life_s
        self._amount = self._weight = 0.0

    def add(self, amount: float, seconds: float) -> None:
        kept = 0.5 ** (seconds / self._half_life_s)
        # the amount is spread evenly over its time: the integral of the weight over that time is (1 - kept) * scale
        scale = self._half_life_s / math.log(2)
        self._amount = kept * self._amount + amount / seconds * (1 - kept) * scale
        self._weight = kept * self._weight + (1 - kept) * scale

    @property
    def value(self) -> float:
        return self._amount / self._weight
