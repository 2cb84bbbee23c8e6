"""A link that fades: Markov states for the large scale, log-AR(1) around their medians, short interruptions."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from testbed.traces.models.base import Draw, LinkRow
from testbed.traces.models.draws import LinkState, walk_around_zero, walk_interruptions, walk_states


@dataclass(frozen=True)
class FadingLink:
    """``rate = clip(median of the state x exp(fading), low, high)``, x ``interruption_factor`` in an interruption.

    A state whose median is 0 is an outage. Calling it yields the rows; endless.
    """

    step_s: float
    start_state: str
    states: dict[str, LinkState]
    fading_sigma: float  # standard deviation of the natural logarithm of the rate
    fading_memory_s: float  # time in which the fading's correlation falls to 1/e
    interruption_every_s: float
    interruption_stay_s: tuple[float, float]
    interruption_factor: float
    low_mbps: float
    high_mbps: float

    def __call__(self, draw: Draw) -> Iterator[LinkRow]:
        """See ``TraceModel.rows``."""
        states = walk_states(self.states, self.start_state, self.step_s, draw)
        fading = walk_around_zero(self.fading_sigma, self.fading_memory_s, self.step_s, draw)
        interruptions = walk_interruptions(self.interruption_every_s, self.interruption_stay_s, self.step_s, draw)
        while True:
            fade, median_mbps = next(fading), next(states).median_mbps
            rate_mbps = min(self.high_mbps, max(self.low_mbps, median_mbps * math.exp(fade)))
            # an interruption may go below the low end: that is what makes it hurt
            factor = self.interruption_factor if next(interruptions) else 1.0
            yield LinkRow(rate_mbps * factor if median_mbps else 0.0)
