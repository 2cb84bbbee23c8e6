"""The comparison as Markdown: for the terminal and for a CI job's summary."""

from collections.abc import Sequence

from testbed.compare import wording
from testbed.compare.comparison import Cell, Comparison
from testbed.compare.measures import EQUIVALENCE_CONFIDENCE, waited_ms
from testbed.compare.pairs import Pair
from testbed.compare.rules import ALPHA, Verdict
from testbed.compare.runs import Run
from testbed.stats import CONFIDENCE

_HEADINGS = ["scenario", "method", "pairs", "measure", "BASE → NEW", "change [95 %]", "p (Holm)", "verdict"]


def render_markdown(comparison: Comparison) -> str:
    """Verdict first; what is equivalent is folded away at the end."""
    changed = [cell for cell in comparison.cells if cell.verdict is not Verdict.EQUIVALENT]
    same = [cell for cell in comparison.cells if cell.verdict is Verdict.EQUIVALENT]
    parts = [f"## {wording.headline(comparison)}"]
    parts += ["\n".join(f"> {note}" for note in comparison.notes)] if comparison.notes else []
    if changed:
        parts += [_table(changed), "\n".join(f"- {_why(cell)}" for cell in changed)]
    parts += [
        _details(f"Slowest against BASE: {_name(cell)}", _worst_table(cell)) for cell in changed if _shows_worst(cell)
    ]
    if same:
        parts.append(_details(f"Equivalent ({len(same)})", _table(same)))
    parts += [_rules(comparison), _provenance(comparison)]
    return "\n\n".join(parts) + "\n"


def render_refusal(reason: str) -> str:
    """What a job's summary says where nothing could be compared: never an empty page."""
    return f"## NOT COMPARED\n\n{reason}\n"


def _table(cells: Sequence[Cell]) -> str:
    rows = [_HEADINGS, ["---", "---", "---:", "---", "---:", "---:", "---:", "---"]]
    for cell in cells:
        for place, finding in enumerate(cell.findings):
            first = [cell.scenario, cell.method, str(cell.pairs)] if place == 0 else ["", "", ""]
            measure = finding.measure
            rows.append(
                [
                    *first,
                    wording.LABELS[measure.name],
                    wording.figures(measure),
                    wording.change_with_interval(measure),
                    wording.p_value(finding),
                    str(finding.verdict),
                ]
            )
    return _markdown_table(rows)


def _why(cell: Cell) -> str:
    text = f"**{cell.verdict}** {_name(cell)}: {'; '.join(wording.reasons(cell))}."
    if cell.verdict is not Verdict.INCONCLUSIVE and (stages := wording.stages(cell.stage_changes_ms)):
        text += f" Mean change by stage: {stages}."
    violations = cell.findings[0].measure
    text += f" Violated in NEW only {violations.counts['new_only']}, in BASE only {violations.counts['base_only']}."
    if cell.p95_ratio is not None:
        text += f" p95 of TTFT × {cell.p95_ratio:.3f}{_interval(cell)}."
    return text


def _interval(cell: Cell) -> str:
    low, high = cell.p95_interval
    return "" if low is None or high is None else f" [{low:.3f}, {high:.3f}]"


def _shows_worst(cell: Cell) -> bool:
    return cell.verdict is Verdict.REGRESSED and bool(cell.worst)


def _worst_table(cell: Cell) -> str:
    rows = [["request", "trace offset s", "BASE s", "NEW s", "stages"], ["---:", "---:", "---:", "---:", "---"]]
    rows += [_worst_row(pair) for pair in cell.worst]
    return _markdown_table(rows)


def _worst_row(pair: Pair) -> list[str]:
    stages = {
        stage: pair.new.stages_ms[stage] - spent_ms
        for stage, spent_ms in pair.base.stages_ms.items()
        if stage in pair.new.stages_ms
    }
    sides = [row.status if row.ttft_ms is None else f"{waited_ms(row, 0.0) / 1e3:.3f}" for row in (pair.base, pair.new)]
    return [str(pair.base.request), f"{pair.base.trace_offset_s:.1f}", *sides, wording.stages(stages)]


def _rules(comparison: Comparison) -> str:
    margins = comparison.margins
    margin_text = (
        f"{100 * margins.violations:g} pp of violations, {100 * margins.ttft:g} % of TTFT, "
        f"{100 * margins.agreement:g} pp of agreement"
    )
    if comparison.is_exact:
        return f"Margins: {margin_text}. Figures are exact: a change of a margin or more is a verdict, without a test."
    return (
        f"Margins: {margin_text}. REGRESSED, IMPROVED: the change is a margin or more, and Holm's p over all tests "
        f"here is at most {ALPHA:.2g}. EQUIVALENT: the {EQUIVALENCE_CONFIDENCE:.0%} interval lies within the margin. "
        f"Else INCONCLUSIVE. Intervals shown are of {CONFIDENCE:.0%}. Rules and error rates: docs/compare.md."
    )


def _provenance(comparison: Comparison) -> str:
    return "\n".join(
        f"- {name}: {', '.join(_run(run) for run in runs)}"
        for name, runs in (("BASE", comparison.base), ("NEW", comparison.new))
    )


def _run(run: Run) -> str:
    commit = (run.commit or "no commit")[:12]
    dirty = " with uncommitted changes" if run.fact("manifest:git.dirty") else ""
    return f"`{run.path.name}` ({commit}{dirty}, {run.fact('summary:validity.verdict')})"


def _name(cell: Cell) -> str:
    return f"{cell.method} ({cell.scenario})"


def _details(title: str, body: str) -> str:
    return f"<details><summary>{title}</summary>\n\n{body}\n\n</details>"


def _markdown_table(rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows)
