"""Our own seeded models of links, written out as trace files: ``python -m testbed.trace_synth lte``."""

import math
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from cachegen import UnknownNameError


@dataclass(frozen=True)
class RadioState:
    """One large-scale condition of the radio link."""

    median_mbps: float
    mean_stay_s: float
    next_states: tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class CellularModel:
    """A mobile link: Markov states for where the user is, a log-AR(1) process for fading, dips for handovers.

    ``rate = clip(median of the state x exp(fading), low, high)``, x ``handover_factor`` during a handover.
    """

    seed: int
    duration_s: float
    step_s: float
    start_state: str
    states: dict[str, RadioState]
    fading_sigma: float  # standard deviation of the natural logarithm of the rate
    fading_memory_s: float  # time in which the fading's correlation falls to 1/e
    handover_every_s: float
    handover_stay_s: tuple[float, float]
    handover_factor: float
    low_mbps: float
    high_mbps: float


MODELS = {
    "lte": CellularModel(
        seed=4,
        duration_s=120.0,
        step_s=0.1,
        start_state="fair",
        states={
            "good": RadioState(33.0, 9.0, (("fair", 1.0),)),
            "fair": RadioState(18.0, 7.0, (("good", 0.55), ("poor", 0.45))),
            "poor": RadioState(8.5, 4.0, (("fair", 1.0),)),
        },
        fading_sigma=0.28,
        fading_memory_s=0.8,
        handover_every_s=18.0,
        handover_stay_s=(0.2, 0.5),
        handover_factor=0.25,
        low_mbps=5.0,
        high_mbps=50.0,
    ),
}


def synthesize(model: CellularModel) -> list[float]:
    """Return the model's rates in Mbit/s, one for each step; the same on every machine."""
    # Only random() of a seeded generator is promised to stay the same across Python versions.
    draw = random.Random(model.seed).random
    states = _walk_states(model, draw)
    handovers = _walk_handovers(model, draw)
    memory = math.exp(-model.step_s / model.fading_memory_s)
    fresh = model.fading_sigma * math.sqrt(1 - memory * memory)
    fading = 0.0
    rates_mbps = []
    for _ in range(round(model.duration_s / model.step_s)):
        fading = memory * fading + fresh * _normal(draw)
        rate = model.states[next(states)].median_mbps * math.exp(fading)
        rate = min(model.high_mbps, max(model.low_mbps, rate))
        # a handover may go below the model's low end: that is what makes it hurt
        rates_mbps.append(rate * model.handover_factor if next(handovers) else rate)
    return rates_mbps


def trace_csv(name: str) -> str:
    """Return the text of the trace file of that model.

    Raises
    ------
    UnknownNameError
        There is no such model.
    """
    if name not in MODELS:
        raise UnknownNameError(f"no trace model named {name!r}; known: {', '.join(sorted(MODELS))}")
    model = MODELS[name]
    rows = [f"{i * model.step_s:.1f},{rate:.3f}" for i, rate in enumerate(synthesize(model))]
    return "\n".join(["time_s,rate_mbps", *rows]) + "\n"


def _walk_states(model: CellularModel, draw: Callable[[], float]) -> Iterator[str]:
    """Yield the state of each step: exponential stays, then a drawn successor; endless."""
    state = model.start_state
    while True:
        for _ in range(_stay_steps(model.states[state].mean_stay_s, model, draw)):
            yield state
        mark = draw()
        for successor, probability in model.states[state].next_states:
            state = successor
            mark -= probability
            if mark < 0:
                break


def _walk_handovers(model: CellularModel, draw: Callable[[], float]) -> Iterator[bool]:
    """Yield for each step whether a handover is under way; endless."""
    shortest_s, longest_s = model.handover_stay_s
    while True:
        for _ in range(_stay_steps(model.handover_every_s, model, draw)):
            yield False
        for _ in range(round((shortest_s + (longest_s - shortest_s) * draw()) / model.step_s)):
            yield True


def _stay_steps(mean_s: float, model: CellularModel, draw: Callable[[], float]) -> int:
    """Draw an exponential stay, at least one step long."""
    return max(1, round(-math.log(1 - draw()) * mean_s / model.step_s))


def _normal(draw: Callable[[], float]) -> float:
    """Draw a standard normal value, as near as twelve uniform ones give it (no tails beyond 6 sigma)."""
    return sum(draw() for _ in range(12)) - 6


if __name__ == "__main__":
    sys.stdout.write(trace_csv(*sys.argv[1:]))
