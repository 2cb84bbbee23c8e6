"""The harmonic mean of the last objects' throughputs, as in MPC-based rate control (Yin et al., SIGCOMM'15)."""

from collections import deque

from cachegen.estimators.base import check_observation

_OBJECTS = 5


class HarmonicMeanEstimator:
    """Total bytes over total time of the last five objects, if all were of one size: outliers upwards weigh little."""

    name = "harmonic-mean"

    def __init__(self) -> None:
        self._seconds_per_bit: deque[float] = deque(maxlen=_OBJECTS)

    @property
    def bps(self) -> float | None:
        """Harmonic mean in bits per second; ``None`` before the first object."""
        if not self._seconds_per_bit:
            return None
        return len(self._seconds_per_bit) / sum(self._seconds_per_bit)

    def expect(self, bps: float) -> None:
        """Take it for the throughput of one object."""
        if bps > 0:
            self._seconds_per_bit.append(1 / bps)

    def add_piece(self, size_bytes: int, seconds: float) -> None:
        """Let parts pass: only whole objects count."""

    def add_transfer(self, size_bytes: int, seconds: float) -> None:
        """Take an object into the mean, and the oldest of five out of it.

        Raises
        ------
        InvalidInputError
            Less than no bytes, or no time.
        """
        check_observation(size_bytes, seconds)
        if size_bytes:
            self._seconds_per_bit.append(seconds / (8 * size_bytes))
