"""How often the comparison's verdicts are wrong, and how often they find what is there: by simulation, seeded.

``python -m bench.verdict_rates`` prints the tables of docs/compare.md; minutes. Two sides of a run are drawn as real
runs scatter: the place of the trace sets a TTFT (0.3 in its logarithm), measuring it again adds noise (0.05), and one
measurement in a hundred takes twice as long.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from testbed.compare.measures import Margins, measure_all
from testbed.compare.pairs import Cluster, Pair
from testbed.compare.rules import Verdict, decide, verdict_of_method
from testbed.metrics import RequestRow
from testbed.stats import CONFIDENCE

SLO_MS = 1000.0
TIMEOUT_MS = 60_000.0
PLACE_SIGMA, REPEAT_SIGMA = 0.3, 0.05
HICCUP_RATE, HICCUP = 0.01, 2.0
AGREEMENT_TOKENS = 64
_COUNT = 400
# How many comparisons, and of how many requests, say how many requests it takes.
_FEW = 60
_REQUESTS = (5, 9, 10, 20, 30, 133, 150)


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What is drawn.

    Parameters
    ----------
    places : int
        Places of the trace, each with one pair a repetition.
    methods : int
        Compared together; the first one has the planted change.
    slowdown : float
        Of every TTFT of NEW.
    late_share, late_factor : float
        Share of NEW's requests that take so many times as long besides.
    median_ms : float
        Of TTFT, against an objective of 1000.
    """

    places: int
    methods: int = 4
    repetitions: int = 1
    slowdown: float = 1.0
    late_share: float = 0.0
    late_factor: float = 3.0
    median_ms: float = 850.0


def draw_method(rng: np.random.Generator, setting: Setting, is_changed: bool) -> list[Cluster]:
    """Pairs of one method in clusters."""
    place_ms = setting.median_ms * np.exp(rng.normal(0, PLACE_SIGMA, setting.places))
    base, new = (_measure(rng, place_ms, setting) for _ in range(2))
    if is_changed:
        late = rng.random(new.shape) < setting.late_share
        new = new * setting.slowdown * np.where(late, setting.late_factor, 1.0)
    agreements = rng.binomial(AGREEMENT_TOKENS, 0.96, (2, *base.shape)) / AGREEMENT_TOKENS
    return [
        tuple(
            Pair(
                _row(place, float(base[place, draw]), float(agreements[0, place, draw])),
                _row(place, float(new[place, draw]), float(agreements[1, place, draw])),
                turn=draw,
                half=0,
            )
            for draw in range(setting.repetitions)
        )
        for place in range(setting.places)
    ]


def verdicts(rng: np.random.Generator, setting: Setting) -> list[Verdict]:
    """Verdict on each method of one comparison."""
    measures = [
        measure_all(draw_method(rng, setting, method == 0), Margins(), TIMEOUT_MS, is_exact=False)
        for method in range(setting.methods)
    ]
    findings = iter(decide([measure for found in measures for measure in found]))
    return [verdict_of_method([next(findings) for _ in found]) for found in measures]


def draw_verdicts(count: int, seed: int, setting: Setting) -> list[list[Verdict]]:
    """Verdicts of so many comparisons."""
    rng = np.random.default_rng(seed)
    return [verdicts(rng, setting) for _ in range(count)]


def share(drawn: Sequence[list[Verdict]], holds: Callable[[list[Verdict]], bool]) -> float:
    """Share of the comparisons for which something holds."""
    return sum(map(holds, drawn)) / len(drawn)


def false_equivalences(count: int, seed: int, setting: Setting) -> float:
    """Share of the first method's TTFTs called equivalent; a slowdown of the margin makes each one an error."""
    rng = np.random.default_rng(seed)
    found = 0
    for _ in range(count):
        measures = measure_all(draw_method(rng, setting, is_changed=True), Margins(), TIMEOUT_MS, is_exact=False)
        found += decide([measures[1]])[0].verdict is Verdict.EQUIVALENT
    return found / count


def bootstrap_alarms(count: int, seed: int, places: int) -> float:
    """Share of A/A samples whose 95 % percentile bootstrap leaves out zero: what the rule in use is held against."""
    rng = np.random.default_rng(seed)
    found = 0
    for _ in range(count):
        differences = rng.normal(0, REPEAT_SIGMA * np.sqrt(2), places)
        means = differences[rng.integers(places, size=(2000, places))].mean(axis=1)
        low, high = np.quantile(means, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
        found += not low <= 0 <= high
    return found / count


def _measure(rng: np.random.Generator, place_ms: np.ndarray, setting: Setting) -> np.ndarray:
    shape = (setting.places, setting.repetitions)
    hiccups = np.where(rng.random(shape) < HICCUP_RATE, HICCUP, 1.0)
    return np.asarray(place_ms[:, None] * np.exp(rng.normal(0, REPEAT_SIGMA, shape)) * hiccups)


def _row(place: int, ttft_ms: float, agreement: float) -> RequestRow:
    return RequestRow(
        request=place,
        method="drawn",
        context="drawn",
        trace_offset_s=float(place),
        slo_ms=SLO_MS,
        status="ok",
        ttft_ms=ttft_ms,
        agreement=agreement,
    )


def is_alarm(found: Sequence[Verdict]) -> bool:
    """Whether any method is said to have changed."""
    return Verdict.REGRESSED in found or Verdict.IMPROVED in found


def _same_code() -> None:
    _head("A/A, four methods", "any REGRESSED", "any REGRESSED or IMPROVED", "a method EQUIVALENT")
    for setting, name in (
        (Setting(places=6), "6 places"),
        (Setting(places=20), "20 places"),
        (Setting(places=60), "60 places"),
        (Setting(places=20, repetitions=3), "20 places, 3 repetitions"),
        (Setting(places=250, median_ms=250.0), "250 places, far from the objective"),
    ):
        drawn = draw_verdicts(_COUNT, 1, setting)
        holds = (lambda found: Verdict.REGRESSED in found, is_alarm, lambda found: found[0] is Verdict.EQUIVALENT)
        _line(name, *(f"{share(drawn, one):.1%}" for one in holds))


def _planted_changes() -> None:
    _head("planted in one of four methods", "8 places", "12", "20", "40", "100")
    for name, slowdown, late_share in (
        ("TTFT + 10 %", 1.1, 0.0),
        ("TTFT + 20 %", 1.2, 0.0),
        ("1 request in 10 three times as slow", 1.0, 0.1),
    ):
        settings = [Setting(places=places, slowdown=slowdown, late_share=late_share) for places in (8, 12, 20, 40, 100)]
        _line(name, *(f"{_first_is(Verdict.REGRESSED, _COUNT // 2, 2, setting):.0%}" for setting in settings))


def _false_equivalences() -> None:
    _head("TTFT + 5 %, the margin itself", "called EQUIVALENT")
    for places in (10, 40, 100):
        rate = false_equivalences(_COUNT, 3, Setting(places=places, methods=1, slowdown=1.05))
        _line(f"{places} places", f"{rate:.1%}")


def _bootstrap() -> None:
    _head("A/A, one measure of one method, by a percentile bootstrap", "false alarms")
    for places in (5, 6, 10, 20):
        _line(f"{places} places", f"{bootstrap_alarms(10 * _COUNT, 4, places):.1%}")


def _requests_needed() -> None:
    _head("requests a method", *map(str, _REQUESTS))
    for name, verdict, slowdown, median_ms in (
        ("TTFT + 30 % in one method: REGRESSED", Verdict.REGRESSED, 1.3, 850.0),
        ("TTFT + 10 % in one method: REGRESSED", Verdict.REGRESSED, 1.1, 850.0),
        ("the same code, far from the objective: a method EQUIVALENT", Verdict.EQUIVALENT, 1.0, 250.0),
    ):
        settings = [Setting(places=n, methods=5, slowdown=slowdown, median_ms=median_ms) for n in _REQUESTS]
        _line(name, *(f"{_first_is(verdict, _FEW, 5, setting):.0%}" for setting in settings))


def _first_is(verdict: Verdict, count: int, seed: int, setting: Setting) -> float:
    return share(draw_verdicts(count, seed, setting), lambda found: found[0] is verdict)


def _head(*columns: str) -> None:
    sys.stdout.write("\n")
    _line(*columns)
    _line("---", *("---:" for _ in columns[1:]))


def _line(*cells: str) -> None:
    sys.stdout.write(f"| {' | '.join(cells)} |\n")
    sys.stdout.flush()


def main() -> int:
    """Print the tables."""
    for table in (_same_code, _planted_changes, _false_equivalences, _bootstrap, _requests_needed):
        table()
    return 0


if __name__ == "__main__":
    sys.exit(main())
