"""How figures of a comparison are written, alike in Markdown and JUnit."""

import math
from collections.abc import Sequence

from testbed.compare.comparison import BATCHES, PLACES, RUNS, Cell, Comparison
from testbed.compare.measures import Measure
from testbed.compare.rules import Finding, Verdict

LABELS = {"violations": "SLO violations", "ttft": "TTFT", "agreement": "agreement"}
_ONE = {PLACES: "place of the trace", BATCHES: "batch", RUNS: "pair of runs"}
# what a verdict needs more of
_MORE = {
    PLACES: ("more pairs, at further places of the trace", ""),
    BATCHES: (
        "more batches",
        ": requests of one batch share link and host, so they count once; run both sides with further seeds, one "
        "--seed after the other",
    ),
    RUNS: ("more pairs of runs, or a steady machine", ""),
}


def headline(comparison: Comparison) -> str:
    """The whole in one line."""
    verdicts = [cell.verdict for cell in comparison.cells]
    counts = ", ".join(f"{verdicts.count(verdict)} {verdict.lower()}" for verdict in Verdict if verdict in verdicts)
    pairs = sum(cell.pairs for cell in comparison.cells)
    return f"{comparison.verdict}: of {len(verdicts)} scenario and method, {counts} ({pairs} pairs of requests)"


def figures(measure: Measure) -> str:
    """Both sides' figures."""
    if measure.name == "ttft":
        return f"{measure.base / 1e3:#.3g} → {measure.new / 1e3:#.3g} s"
    return f"{measure.base:.1%} → {measure.new:.1%}"


def change(measure: Measure, value: float, *, signed: bool = True) -> str:
    """A change, in the unit of its margin."""
    sign = "+" if signed else ""
    if measure.name == "ttft":
        return f"{math.expm1(value):{sign}.1%}"
    return f"{100 * value:{sign}.1f} pp"


def change_with_interval(measure: Measure) -> str:
    """The change, and where it is sampled its interval."""
    text = change(measure, measure.change)
    if measure.interval is None:
        return text
    low, high = (_bound(measure, bound) for bound in measure.interval)
    return f"{text} [{low}, {high}]"


def _bound(measure: Measure, bound: float) -> str:
    if math.isinf(bound):
        return "–∞" if bound < 0 else "∞"
    return change(measure, bound).removesuffix(" pp")


def p_value(finding: Finding) -> str:
    """Holm's p."""
    if finding.adjusted_p is None:
        return "exact"
    return "<0.001" if finding.adjusted_p < 0.001 else f"{finding.adjusted_p:.3f}"


def reason(finding: Finding, unit: str) -> str:
    """Why a measure has its verdict, as half a sentence."""
    measure = finding.measure
    label, margin = LABELS[measure.name], change(measure, measure.margin, signed=False)
    seen = change_with_interval(measure)
    if finding.verdict is Verdict.EQUIVALENT:
        return f"{label} within {margin}: {seen}"
    if finding.verdict is Verdict.INCONCLUSIVE:
        size = "no less than" if abs(measure.change) >= measure.margin else "less than"
        return f"{label} {seen}: {size} {margin} so far, and {_unsettled(measure.clusters, unit)}"
    word = "worse" if finding.verdict is Verdict.REGRESSED else "better"
    test = "" if finding.adjusted_p is None else f", p {p_value(finding)}"
    return f"{label} {word}: {seen}{test}, margin {margin}"


def _unsettled(clusters: int, unit: str) -> str:
    return f"1 {_ONE[unit]} does not settle it" if clusters == 1 else f"{clusters} {unit} do not settle it"


def reasons(cell: Cell) -> list[str]:
    """Why a method has its verdict: the measures that decided it, and what more would decide it."""
    deciding = [finding for finding in cell.findings if finding.verdict is cell.verdict]
    found = [reason(finding, cell.unit) for finding in deciding]
    if "ttft" not in {finding.measure.name for finding in cell.findings}:
        found.append("no request came to a first token on either side")
    if cell.more_clusters:
        (what, how), total = _MORE[cell.unit], cell.clusters + cell.more_clusters
        found.append(f"a verdict needs about {cell.more_clusters} {what} ({total} in all){how}")
    return found


def stages(changes_ms: dict[str, float]) -> str:
    """Stages that changed most, in ms."""
    largest: Sequence[tuple[str, float]] = sorted(changes_ms.items(), key=lambda item: -abs(item[1]))[:3]
    return ", ".join(f"{stage} {spent_ms:+.0f} ms" for stage, spent_ms in largest if abs(spent_ms) >= 0.5)
