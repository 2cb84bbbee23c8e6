"""The comparison as a JSON document for scripts; docs/compare.md has its fields."""

import math
from collections.abc import Sequence
from typing import Any

from testbed.compare.comparison import Cell, Comparison
from testbed.compare.measures import Measure
from testbed.compare.rules import ALPHA, Finding
from testbed.compare.runs import Run
from testbed.paired import Bounds

COMPARISON_SCHEMA = 1


def to_document(comparison: Comparison, exit_status: int) -> dict[str, Any]:
    """Everything a comparison found, as JSON can hold it."""
    return {
        "schema": COMPARISON_SCHEMA,
        "verdict": str(comparison.verdict),
        "exit_status": exit_status,
        "tier": comparison.tier,
        "exact": comparison.is_exact,
        "alpha": round(ALPHA, 12),
        "margins": {
            "violations": comparison.margins.violations,
            "ttft": comparison.margins.ttft,
            "agreement": comparison.margins.agreement,
        },
        "notes": list(comparison.notes),
        "base": _runs(comparison.base),
        "new": _runs(comparison.new),
        "cells": [_cell(cell) for cell in comparison.cells],
    }


def refusal_document(reason: str, exit_status: int) -> dict[str, Any]:
    """What a script reads where nothing could be compared."""
    return {"schema": COMPARISON_SCHEMA, "verdict": None, "exit_status": exit_status, "reason": reason}


def _runs(runs: Sequence[Run]) -> list[dict[str, Any]]:
    return [{"path": str(run.path), "commit": run.commit, "started_utc": run.started_utc} for run in runs]


def _cell(cell: Cell) -> dict[str, Any]:
    return {
        "scenario": cell.scenario,
        "method": cell.method,
        "verdict": str(cell.verdict),
        "pairs": cell.pairs,
        "clusters": cell.clusters,
        "unit": cell.unit,
        "more_pairs": cell.more_clusters,
        "measures": {finding.measure.name: _finding(finding) for finding in cell.findings},
        "ttft_p95_ratio": cell.p95_ratio,
        "ttft_p95_ratio_interval": cell.p95_interval,
        "stage_changes_ms": cell.stage_changes_ms,
    }


def _finding(finding: Finding) -> dict[str, Any]:
    measure = finding.measure
    return {
        "verdict": str(finding.verdict),
        "base": measure.base,
        "new": measure.new,
        "change": _on_scale(measure, measure.change),
        "interval": _bounds(measure, measure.interval),
        "equivalence_interval": _bounds(measure, measure.equivalence_interval),
        "margin": _on_scale(measure, measure.margin),
        "p_value": measure.p_value,
        "p_value_holm": finding.adjusted_p,
        "clusters": measure.clusters,
        **measure.counts,
    }


def _bounds(measure: Measure, bounds: Bounds | None) -> list[float | None] | None:
    """A bound that there were too few requests for is None."""
    if bounds is None:
        return None
    return [None if math.isinf(bound) else _on_scale(measure, bound) for bound in bounds]


def _on_scale(measure: Measure, value: float) -> float:
    """TTFT as a relative change, 0.2 for a fifth longer; shares as they are."""
    return math.expm1(value) if measure.name == "ttft" else value
