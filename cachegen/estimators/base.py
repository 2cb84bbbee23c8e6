"""What a throughput estimator is told of a link, and what it answers.

A load tells it of two kinds of things: pieces, as they arrive, and transfers, once they are whole. Time counts only
while something is being asked for, so a link that nobody used looks neither fast nor slow.
"""

import math
from typing import Protocol

from cachegen.errors import InvalidInputError


class ThroughputEstimator(Protocol):
    """Estimates the throughput that the next object will see."""

    name: str
    """In ``ESTIMATORS`` and in logs."""

    @property
    def bps(self) -> float | None:
        """Bits per second; ``None`` before anything is known."""
        ...

    def expect(self, bps: float) -> None:
        """Begin with what is known from before; the first observations outweigh it."""
        ...

    def add_piece(self, size_bytes: int, seconds: float) -> None:
        """Take note of bytes (perhaps none) that arrived within ``seconds`` in which the link was in use."""
        ...

    def add_transfer(self, size_bytes: int, seconds: float) -> None:
        """Take note of a whole object and of the time it took, from its request or the end of the one before it."""
        ...


def check_observation(size_bytes: int, seconds: float) -> None:
    """Refuse what cannot have been observed.

    Raises
    ------
    InvalidInputError
        Less than no bytes, or no time.
    """
    if size_bytes < 0 or not 0 < seconds < math.inf:
        raise InvalidInputError(f"{size_bytes} bytes in {seconds} s are no throughput")
