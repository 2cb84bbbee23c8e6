"""From runs to pairs: the same request, method and place of the trace on both sides, in clusters by place."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from testbed.compare.runs import Run
from testbed.compare.scenarios import Scenario
from testbed.errors import IncomparableError
from testbed.metrics import RequestRow

_Key = tuple[float, int]


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


# all pairs at one place of the trace: they share the link, and are not independent
Cluster = tuple[Pair, ...]


def methods_of(runs: Iterable[Run]) -> list[str]:
    """Methods that some run has, in order of appearance."""
    return list(dict.fromkeys(row.method for run in runs for row in run.rows))


def pair_up(scenario: Scenario, method: str) -> list[Cluster]:
    """Pairs of one method by trace offset; the n-th time a side serves a request goes with the other side's n-th.

    Raises
    ------
    IncomparableError
        A request that one side served more often, or under another objective, or with another context.
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
        for place, row in enumerate(rows):
            half = int(2 * place >= len(rows))
            found.setdefault((row.trace_offset_s, row.request), []).append(_Served(row, number, half))
    return found


def _unpaired(scenario: Scenario, method: str, key: _Key, counts: tuple[int, int]) -> IncomparableError:
    seeds = [sorted({str(run.config.get("seed")) for run in runs}) for runs in (scenario.base, scenario.new)]
    return IncomparableError(
        f"{scenario.name}: {method}, request {key[1]} at trace offset {key[0]:g} s: BASE served it "
        f"{_times(counts[0])}, NEW {_times(counts[1])}. Requests are compared in pairs, so both sides need the same "
        f"runs: {len(scenario.base)} in BASE and {len(scenario.new)} in NEW; requests {_requests(scenario.base)} and "
        f"{_requests(scenario.new)}; seed {', '.join(seeds[0])} and {', '.join(seeds[1])}"
    )


def _check_same_question(scenario: Scenario, pair: Pair) -> None:
    for field in ("context", "slo_ms"):
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
