"""When requests arrive: one after the other, or many on one link, as a spec such as ``poisson:0.5`` says.

Requests that may meet on the link form a batch. A batch has one replay of the trace, so all of its requests see the
same link; every method serves the same batches with the same arrivals.
"""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from cachegen import InvalidInputError, UnknownNameError
from testbed.request_log import read_arrivals_s
from testbed.workload import Request, make_schedule


@dataclass(frozen=True)
class Batch:
    """Requests that share a replay.

    Parameters
    ----------
    index : int
        Place in the schedule.
    trace_offset_s : float
        Where in the trace the replay begins.
    requests : tuple of Request
        In order of arrival.
    users : int or None
        In a closed loop: how many are served at once; each next one arrives when one is done.
    """

    index: int
    trace_offset_s: float
    requests: tuple[Request, ...]
    users: int | None = None


class Arrivals(Protocol):
    """A pattern of arrivals."""

    @property
    def users(self) -> int | None:
        """Of a closed loop, else ``None``."""
        ...

    def times_s(self, requests: int, seed: int) -> list[list[float]]:
        """Return the arrivals of each batch in seconds since its beginning, in order; the first at 0."""
        ...


class Sequential:
    """One request at a time, each at its own place in the trace."""

    users = None

    def times_s(self, requests: int, seed: int) -> list[list[float]]:  # noqa: ARG002 - nothing is random
        """See :class:`Arrivals`."""
        return [[0.0] for _ in range(requests)]


@dataclass(frozen=True)
class Burst:
    """So many requests at once, each burst at its own place in the trace."""

    size: int
    users = None

    def times_s(self, requests: int, seed: int) -> list[list[float]]:  # noqa: ARG002 - nothing is random
        """See :class:`Arrivals`."""
        return [[0.0] * min(self.size, requests - first) for first in range(0, requests, self.size)]


@dataclass(frozen=True)
class Poisson:
    """Independent arrivals, ``rate`` a second on average."""

    rate: float
    users = None

    def times_s(self, requests: int, seed: int) -> list[list[float]]:
        """See :class:`Arrivals`."""
        dice, times_s = random.Random(f"{seed}/poisson"), [0.0]
        while len(times_s) < requests:
            times_s.append(times_s[-1] + dice.expovariate(self.rate))
        return [times_s]


@dataclass(frozen=True)
class Closed:
    """A closed loop: each user asks again when the answer to the last question has begun."""

    users: int

    def times_s(self, requests: int, seed: int) -> list[list[float]]:  # noqa: ARG002 - nothing is random
        """See :class:`Arrivals`; all but the first ones arrive later, when a user is free."""
        return [[0.0] * requests]


@dataclass(frozen=True)
class RecordedArrivals:
    """Those of a log of requests, from its first one on."""

    path: Path
    users = None

    def times_s(self, requests: int, seed: int) -> list[list[float]]:  # noqa: ARG002 - nothing is random
        """See :class:`Arrivals`."""
        return [read_arrivals_s(self.path, requests)]


def _make_sequential(argument: str) -> Arrivals:
    if argument:
        raise InvalidInputError(f"arrivals sequential takes no argument, got {argument!r}")
    return Sequential()


def _make_poisson(argument: str) -> Arrivals:
    try:
        rate = float(argument)
    except ValueError:
        rate = math.nan
    if not 0 < rate < math.inf:
        raise InvalidInputError(f"arrivals poisson:{argument}: the rate is a positive number of requests a second")
    return Poisson(rate)


# of a number of requests
_MOST_DIGITS = 9


def _count(name: str, argument: str) -> int:
    if not argument.isdecimal() or len(argument) > _MOST_DIGITS or int(argument) < 1:
        raise InvalidInputError(f"arrivals {name}:{argument[:50]}: the number of requests is a whole one, at least 1")
    return int(argument)


ARRIVALS: dict[str, Callable[[str], Arrivals]] = {
    "burst": lambda argument: Burst(_count("burst", argument)),
    "closed": lambda argument: Closed(_count("closed", argument)),
    "poisson": _make_poisson,
    "sequential": _make_sequential,
    "trace": lambda argument: RecordedArrivals(Path(argument)),
}


def make_arrivals(spec: str) -> Arrivals:
    """Return the arrivals of a spec: ``sequential``, ``poisson:RATE``, ``closed:N``, ``burst:N`` or ``trace:FILE``.

    Raises
    ------
    UnknownNameError
        No such pattern; the text lists those there are.
    InvalidInputError
        Its argument is none.
    """
    name, _, argument = spec.partition(":")
    if name not in ARRIVALS:
        raise UnknownNameError(f"no arrivals {name!r}; there are {', '.join(sorted(ARRIVALS))}")
    return ARRIVALS[name](argument)


def make_batches(arrivals: Arrivals, requests: int, num_contexts: int, trace_period_s: float, seed: int) -> list[Batch]:
    """Return the schedule: seeded places in the trace for batches, and the arrivals of their requests."""
    schedule = make_schedule(requests, num_contexts, trace_period_s, seed)
    batches: list[Batch] = []
    first = 0
    for times_s in arrivals.times_s(requests, seed):
        offset_s = schedule[first].trace_offset_s
        members = tuple(
            replace(request, arrival_s=time_s, trace_offset_s=(offset_s + time_s) % trace_period_s)
            for request, time_s in zip(schedule[first : first + len(times_s)], times_s, strict=True)
        )
        batches.append(Batch(len(batches), offset_s, members, arrivals.users))
        first += len(times_s)
    return batches
