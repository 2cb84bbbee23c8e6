"""Lose frames as a link does: at random, or in bursts (Gilbert's model, as netem's ``loss gemodel``)."""

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from testbed.delay import WAY_NAMES
from testbed.link_settings import LinkSettings, Way

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


@dataclass(frozen=True)
class LossCount:
    """Frames that a way of the link lost on purpose.

    Parameters
    ----------
    name : str
        Of ``WAY_NAMES``.
    way : Way
        What was asked for.
    lost, frames : int
        Lost ones, of all that came; at least one came.
    """

    name: str
    way: Way
    lost: int
    frames: int

    @property
    def is_chance(self) -> bool:
        """Whether so many may be lost by chance where ``way.loss`` is asked for."""
        return abs(self.lost / self.frames - self.way.loss) <= loss_tolerance(self.way, self.frames)


def loss_counts(link: LinkSettings, delay_report: Mapping[str, Any]) -> list[LossCount]:
    """Return what each way lost on purpose, by the account of the delay node; a way without frames is left out."""
    counts = []
    for name, way in zip(WAY_NAMES, (link.down, link.up), strict=True):
        lost = delay_report.get("lost", {}).get(name, 0)
        if frames := lost + delay_report.get("passed", {}).get(name, 0):
            counts.append(LossCount(name, way, lost, frames))
    return counts
