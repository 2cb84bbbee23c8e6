"""Random walks that the models are made of, drawn from uniform values alone."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from testbed.traces.models.base import Draw


@dataclass(frozen=True)
class LinkState:
    """One large-scale condition of a link: its median rate, how long it stays so, and what comes next."""

    median_mbps: float
    mean_stay_s: float
    next_states: tuple[tuple[str, float], ...]


def walk_states(states: dict[str, LinkState], start: str, step_s: float, draw: Draw) -> Iterator[LinkState]:
    """Yield the state of each step: exponential stays, then a drawn successor; endless."""
    name = start
    while True:
        state = states[name]
        for _ in range(stay_steps(state.mean_stay_s, step_s, draw)):
            yield state
        mark = draw()
        for successor, probability in state.next_states:
            name = successor
            mark -= probability
            if mark < 0:
                break


def walk_interruptions(every_s: float, stay_s: tuple[float, float], step_s: float, draw: Draw) -> Iterator[bool]:
    """Yield for each step whether an interruption is under way: exponential pauses, uniform lengths; endless."""
    shortest_s, longest_s = stay_s
    while True:
        for _ in range(stay_steps(every_s, step_s, draw)):
            yield False
        for _ in range(round((shortest_s + (longest_s - shortest_s) * draw()) / step_s)):
            yield True


def walk_around_zero(sigma: float, memory_s: float, step_s: float, draw: Draw) -> Iterator[float]:
    """Yield an AR(1) process of standard deviation ``sigma``; correlation falls to 1/e in ``memory_s``; endless."""
    memory = math.exp(-step_s / memory_s)
    fresh = sigma * math.sqrt(1 - memory * memory)
    value = 0.0
    while True:
        value = memory * value + fresh * normal(draw)
        yield value


def stay_steps(mean_s: float, step_s: float, draw: Draw) -> int:
    """Draw an exponential stay, at least one step long."""
    return max(1, round(-math.log(1 - draw()) * mean_s / step_s))


def normal(draw: Draw) -> float:
    """Draw a standard normal value, as near as twelve uniform ones give it (no tails beyond 6 sigma)."""
    return sum(draw() for _ in range(12)) - 6
