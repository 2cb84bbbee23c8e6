"""From runs to pairs: the same request of the same batch on both sides, in clusters by the batch's place."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from testbed.compare.runs import CLOSED, Run
from testbed.compare.scenarios import Scenario
from testbed.errors import IncomparableError, RunFileError
from testbed.metrics import RequestRow

# where in the trace the request's batch began, and the request
_Key = tuple[float, int]
# Two measurements of when the same batch began, each a difference of floats, agree to within this many decimals.
_PLACE_DECIMALS = 6


@dataclass(frozen=True)
class Pair:
    """One request as BASE and as NEW served it.

    Parameters
    ----------
    turn : int
        Number of the pair of runs it is from.
    half : int
        0 or 1: of these runs' requests, in order.
    """

    base: RequestRow
    new: RequestRow
    turn: int
    half: int


class _Served(NamedTuple):
    row: RequestRow
    run: int
    half: int


# all pairs of a batch, and of its repetitions at this place of the trace: they share link and host, and are not
# independent
Cluster = tuple[Pair, ...]


def methods_of(runs: Iterable[Run]) -> list[str]:
    """Methods that some run has, in order of appearance."""
    return list(dict.fromkeys(row.method for run in runs for row in run.rows))


def pair_up(scenario: Scenario, method: str) -> list[Cluster]:
    """Pairs of one method by schedule; the n-th time a side serves a request goes with the other side's n-th.

    A schedule says where in the trace a batch begins, and which requests it has. When they arrive is part of it too,
    but for a closed loop: there each arrival is a measurement.

    Raises
    ------
    IncomparableError
        A request that one side served more often, at another time, under another objective, or with another context.
    RunFileError
        A run does not tell where in the trace a batch began.
    """
    base, new = _by_key(scenario.base, method), _by_key(scenario.new, method)
    turns: dict[tuple[int, int], int] = {}
    clusters: dict[float, list[Pair]] = {}
    for key in sorted(base.keys() | new.keys()):
        one, other = base.get(key, []), new.get(key, [])
        if len(one) != len(other):
            raise _unpaired(scenario, method, key, (len(one), len(other)))
        for served, served_new in zip(one, other, strict=True):
            turn = turns.setdefault((served.run, served_new.run), len(turns))
            pair = Pair(served.row, served_new.row, turn, served.half)
            _check_same_question(scenario, pair)
            clusters.setdefault(key[0], []).append(pair)
    return [tuple(pairs) for pairs in clusters.values()]


def _by_key(runs: Sequence[Run], method: str) -> dict[_Key, list[_Served]]:
    found: dict[_Key, list[_Served]] = {}
    for number, run in enumerate(runs):
        rows = [row for row in run.rows if row.method == method]
        places_s = _places_s(run, rows)
        for position, row in enumerate(rows):
            half = int(2 * position >= len(rows))
            key = (places_s[run.batch_of(row)], row.request)
            found.setdefault(key, []).append(_Served(row, number, half))
    return found


def _places_s(run: Run, rows: Sequence[RequestRow]) -> dict[int, float]:
    """Where in the trace each batch began: its first request's offset, less what that one arrived late by."""
    firsts: dict[int, RequestRow] = {}
    for row in sorted(rows, key=lambda row: row.request):
        firsts.setdefault(run.batch_of(row), row)
    return {batch: _began_s(run, first) for batch, first in firsts.items()}


def _began_s(run: Run, first: RequestRow) -> float:
    began_s = round(first.trace_offset_s - first.arrival_s, _PLACE_DECIMALS)
    if began_s >= 0:
        return began_s
    # the trace came to its end, and began anew, before the request arrived
    period_s = run.fact("manifest:trace.period_s")
    if not isinstance(period_s, int | float) or not 0 < period_s < math.inf:
        raise RunFileError(f"{run.path}: manifest.json trace.period_s must be a number above 0, not {period_s!r}")
    return round(began_s % period_s, _PLACE_DECIMALS)


def _unpaired(scenario: Scenario, method: str, key: _Key, counts: tuple[int, int]) -> IncomparableError:
    seeds = [sorted({str(run.config.get("seed")) for run in runs}) for runs in (scenario.base, scenario.new)]
    return IncomparableError(
        f"{scenario.name}: {method}, request {key[1]} at trace offset {key[0]:g} s: BASE served it "
        f"{_times(counts[0])}, NEW {_times(counts[1])}. Requests are compared in pairs, so both sides need the same "
        f"runs: {len(scenario.base)} in BASE and {len(scenario.new)} in NEW; requests {_requests(scenario.base)} and "
        f"{_requests(scenario.new)}; seed {', '.join(seeds[0])} and {', '.join(seeds[1])}"
    )


def _check_same_question(scenario: Scenario, pair: Pair) -> None:
    is_closed = any(run.arrivals == CLOSED for run in (*scenario.base, *scenario.new))
    for field in ("context", "slo_ms", *(() if is_closed else ("trace_offset_s",))):
        values = getattr(pair.base, field), getattr(pair.new, field)
        if values[0] != values[1]:
            raise IncomparableError(
                f"{scenario.name}: {pair.base.method}, request {pair.base.request}: {field} is {values[0]} in BASE and "
                f"{values[1]} in NEW"
            )


def _times(count: int) -> str:
    return {0: "never", 1: "once"}.get(count, f"{count} times")


def _requests(runs: Sequence[Run]) -> str:
    return ", ".join(str(len({row.request for row in run.rows})) for run in runs)
