"""Lose frames as a link does: at random, or in bursts (Gilbert's model, as netem's ``loss gemodel``)."""

import math
import random

from testbed.link_settings import Way

# Four standard deviations: a sound link is called wrong by its losses in one of about 16,000 runs.
_DEVIATIONS = 4.0


class LossProcess:
    """Says of one frame after the other whether it is lost; the same seed loses the same ones.

    Parameters
    ----------
    way : Way
        With the share that is lost and the mean length of bursts.
    seed : int
        Of the draws.
    """

    def __init__(self, way: Way, seed: int) -> None:
        self._begins, self._ends = way.loss_chances()
        self._draw = random.Random(seed).random
        self._losing = False

    def loses_next(self) -> bool:
        """Return whether the next frame is lost."""
        if self._losing:
            self._losing = self._draw() >= self._ends
        else:
            self._losing = self._draw() < self._begins
        return self._losing


def loss_tolerance(way: Way, frames: int) -> float:
    """Return how far the share of lost frames may be from ``way.loss`` by chance, among as many frames.

    Frames lost in a row count as little more than one: for Gilbert's chain with chances ``p`` and ``r`` the variance
    of a mean is that of independent frames times ``(2 - p - r) / (p + r)``.
    """
    if not frames:
        return 1.0
    begins, ends = way.loss_chances()
    inflation = (2 - begins - ends) / (begins + ends) if begins + ends else 1.0
    # the second term: a normal curve fits the few losses of a short run badly
    return _DEVIATIONS * math.sqrt(way.loss * (1 - way.loss) * inflation / frames) + (
        _DEVIATIONS**2 * way.loss_burst_frames / (2 * frames)
    )
