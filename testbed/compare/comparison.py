"""A comparison as a whole: scenarios, pairs, measures, verdicts, and what a reader must know beside them."""

from collections.abc import Sequence
from dataclasses import dataclass

from testbed.compare.measures import Margins, measure_all, waited_ms, with_first_token
from testbed.compare.pairs import Cluster, Pair, methods_of, pair_up
from testbed.compare.rules import Finding, Verdict, decide, verdict_of_all, verdict_of_method
from testbed.compare.runs import SEQUENTIAL, VIRTUAL, Run
from testbed.compare.scenarios import Scenario, machine_notes, match_scenarios, setting_notes
from testbed.compare.steadiness import Wander, by_turn, find_wander
from testbed.errors import IncomparableError
from testbed.metrics import STAGES
from testbed.stats import NO_INTERVAL, Interval, percentile_ratio

_WORST_SHOWN = 5
PLACES, BATCHES, RUNS = "places of the trace", "batches", "pairs of runs"


@dataclass(frozen=True)
class Cell:
    """One method in one scenario.

    Parameters
    ----------
    pairs, clusters : int
        Requests compared, and how many independent ones they are worth at the least.
    unit : str
        What a cluster is: a place of the trace with one request or a batch, or on an unsteady machine a pair of runs.
    p95_ratio, p95_interval : float or None, interval
        95th percentile of TTFT, NEW over BASE, with its 95 % bootstrap interval. No verdict rests on it.
    stage_changes_ms : dict
        Mean change of each stage over the pairs that came to a first token on both sides.
    worst : tuple of Pair
        Those whose TTFT grew most, by ratio.
    """

    scenario: str
    method: str
    pairs: int
    clusters: int
    unit: str
    findings: tuple[Finding, ...]
    verdict: Verdict
    p95_ratio: float | None
    p95_interval: Interval
    stage_changes_ms: dict[str, float]
    worst: tuple[Pair, ...]

    @property
    def more_clusters(self) -> int:
        """How many further clusters a verdict needs, about; 0 if there is one."""
        if self.verdict is not Verdict.INCONCLUSIVE:
            return 0
        return max(finding.more_clusters for finding in self.findings)


@dataclass(frozen=True)
class Comparison:
    """All that a report of a comparison says.

    Parameters
    ----------
    is_exact : bool
        The figures repeat to the last digit (virtual tier, or one measurement on both sides): no sampling, no test.
    notes : tuple of str
        What a reader must know to trust the verdicts.
    """

    base: tuple[Run, ...]
    new: tuple[Run, ...]
    margins: Margins
    tier: str
    is_exact: bool
    cells: tuple[Cell, ...]
    notes: tuple[str, ...]

    @property
    def verdict(self) -> Verdict:
        """Of the whole."""
        return verdict_of_all(cell.verdict for cell in self.cells)


def compare_runs(base: Sequence[Run], new: Sequence[Run], margins: Margins) -> Comparison:
    """Compare the runs of two sides, one at least on each.

    Raises
    ------
    IncomparableError
        The sides differ in more than the code, or a request has no counterpart; the text names what.
    """
    scenarios = match_scenarios(base, new)
    entries = [
        (scenario, method, pair_up(scenario, method)) for scenario in scenarios for method in _common_methods(scenario)
    ]
    wanders = {} if base[0].tier == VIRTUAL else _find_wanders(entries, margins)
    entries = [
        (scenario, method, by_turn(clusters) if scenario.name in wanders else clusters)
        for scenario, method, clusters in entries
    ]
    is_virtual = base[0].tier == VIRTUAL
    is_same = _is_same_measurement([clusters for _, _, clusters in entries])
    is_exact = is_virtual or is_same
    measured = [
        measure_all(clusters, margins, scenario.request_timeout_ms, is_exact) for scenario, _, clusters in entries
    ]
    findings = iter(decide([measure for measures in measured for measure in measures]))
    cells = [
        _cell(
            scenario,
            method,
            clusters,
            [next(findings) for _ in measures],
            RUNS if scenario.name in wanders else _unit(scenario),
        )
        for (scenario, method, clusters), measures in zip(entries, measured, strict=True)
    ]
    notes = [*_notes(scenarios, is_virtual, is_same), *map(_wander_note, wanders.items())]
    return Comparison(tuple(base), tuple(new), margins, base[0].tier, is_exact, tuple(cells), tuple(notes))


def _common_methods(scenario: Scenario) -> list[str]:
    base, new = methods_of(scenario.base), methods_of(scenario.new)
    if set(base) - set(new):
        raise IncomparableError(
            f"{scenario.name}: methods are {', '.join(base)} in BASE and {', '.join(new)} in NEW: a method of BASE "
            "that NEW lacks cannot be compared"
        )
    return base


def _find_wanders(entries: Sequence[tuple[Scenario, str, list[Cluster]]], margins: Margins) -> dict[str, Wander]:
    names = dict.fromkeys(scenario.name for scenario, _, _ in entries)
    found = {
        name: find_wander([clusters for scenario, _, clusters in entries if scenario.name == name], margins.ttft)
        for name in names
    }
    return {name: wander for name, wander in found.items() if wander is not None}


def _unit(scenario: Scenario) -> str:
    return PLACES if all(run.arrivals == SEQUENTIAL for run in scenario.base) else BATCHES


def _wander_note(entry: tuple[str, Wander]) -> str:
    name, wander = entry
    return (
        f"{name}: TTFT of NEW against BASE went from {wander.low:+.1%} to {wander.high:+.1%} about its median in the "
        "course of the runs: the machine was not steady. Pairs of runs are counted instead of what they served; "
        "measure again on a machine without other work"
    )


def _cell(scenario: Scenario, method: str, clusters: Sequence[Cluster], findings: Sequence[Finding], unit: str) -> Cell:
    timeout_ms = scenario.request_timeout_ms
    known = with_first_token(clusters)
    base = [[waited_ms(pair.base, timeout_ms) for pair in cluster] for cluster in known]
    new = [[waited_ms(pair.new, timeout_ms) for pair in cluster] for cluster in known]
    ratio, interval = percentile_ratio(base, new, 0.95) if known else (None, NO_INTERVAL)
    if findings[0].adjusted_p is None:
        interval = NO_INTERVAL
    return Cell(
        scenario=scenario.name,
        method=method,
        pairs=sum(len(cluster) for cluster in clusters),
        clusters=len(clusters),
        unit=unit,
        findings=tuple(findings),
        verdict=verdict_of_method(findings),
        p95_ratio=ratio,
        p95_interval=interval,
        stage_changes_ms=_stage_changes_ms(known),
        worst=_worst(known, timeout_ms),
    )


def _stage_changes_ms(clusters: Sequence[Cluster]) -> dict[str, float]:
    both = [pair for cluster in clusters for pair in cluster if pair.base.stages_ms and pair.new.stages_ms]
    return {
        stage: sum(pair.new.stages_ms.get(stage, 0.0) - pair.base.stages_ms.get(stage, 0.0) for pair in both)
        / len(both)
        for stage in STAGES
        if both
    }


def _worst(clusters: Sequence[Cluster], timeout_ms: float) -> tuple[Pair, ...]:
    pairs = [pair for cluster in clusters for pair in cluster]
    pairs.sort(key=lambda pair: waited_ms(pair.base, timeout_ms) / waited_ms(pair.new, timeout_ms))
    return tuple(pairs[:_WORST_SHOWN])


def _is_same_measurement(entries: Sequence[Sequence[Cluster]]) -> bool:
    """Whether every TTFT equals its counterpart to the last digit: two measurements by a clock never do."""
    pairs = [pair for clusters in entries for cluster in clusters for pair in cluster]
    return all(pair.base.ttft_ms == pair.new.ttft_ms for pair in pairs) and any(
        pair.base.ttft_ms is not None for pair in pairs
    )


def _notes(scenarios: Sequence[Scenario], is_virtual: bool, is_same: bool) -> list[str]:
    notes = setting_notes(scenarios)
    if is_virtual:
        notes.append(
            "virtual tier: every figure repeats to the last digit, so equality is exact and any change is real"
        )
        notes += ["all TTFTs are equal to the last digit"] if is_same else []
        return notes
    if is_same:
        notes.append(
            "every TTFT of NEW equals that of BASE to the last digit: this is one measurement, compared with itself, "
            "and says nothing of what two measurements of the same code would be called"
        )
    elif any(_is_apart(scenario) for scenario in scenarios):
        notes.append(
            "the runs of one side were all over before those of the other began: what the machine did in between "
            "counts as a change; take turns (BASE, NEW, NEW, BASE)"
        )
    for scenario in scenarios:
        if only := [name for name in methods_of(scenario.new) if name not in methods_of(scenario.base)]:
            notes.append(f"{scenario.name}: {', '.join(only)} in NEW only, so not compared")
    return notes + machine_notes(scenarios)


def _is_apart(scenario: Scenario) -> bool:
    base, new = ([run.started_utc for run in side] for side in (scenario.base, scenario.new))
    return max(base) < min(new) or max(new) < min(base)
