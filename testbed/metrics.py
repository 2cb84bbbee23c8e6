"""From rows of requests to the summary of a run: every figure of a report is computed here, from files alone."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from testbed.fidelity import percentile

SUMMARY_SCHEMA = 1
STAGES = ("queue", "wait", "fetch", "decode", "recompute", "question_prefill")


@dataclass(frozen=True, kw_only=True)
class RequestRow:
    """One issued request under one method, as ``requests.csv`` has it.

    Parameters
    ----------
    status : str
        ``ok``, ``failed``, ``timed_out`` or ``refused``.
    ttft_ms : float or None
        From the scheduled arrival to the first sampled token; None unless ``ok``.
    stages_ms : dict
        Of ``STAGES``; they sum to ``ttft_ms``. Empty unless ``ok``.
    bytes : int
        Received from the store: manifest, tokens and chunks.
    kl, agreement, dppl : float or None
        Against the uncompressed cache, see ``testbed.quality``.
    levels : dict
        Number of chunks by encoding, or ``recompute``.
    link_mbps : float or None
        Mean rate of the trace from arrival to the first token.
    batch : int
        Requests of one batch shared the link, and one replay of the trace.
    sharing : str
        How they did.
    arrival_s, ended_s : float
        Since the batch's beginning: when the request arrived, and when it had its first token or was given up.
    """

    request: int
    method: str
    context: str
    trace_offset_s: float
    slo_ms: float
    status: str
    ttft_ms: float | None = None
    stages_ms: dict[str, float] = field(default_factory=dict)
    bytes: int = 0
    kl: float | None = None
    agreement: float | None = None
    dppl: float | None = None
    levels: dict[str, int] = field(default_factory=dict)
    link_mbps: float | None = None
    error: str = ""
    batch: int = 0
    sharing: str = ""
    arrival_s: float = 0.0
    ended_s: float = 0.0

    @property
    def violation(self) -> bool:
        """Whether the objective was missed; a request without a first token misses it."""
        return self.ttft_ms is None or self.ttft_ms > self.slo_ms


def summarize_method(rows: Sequence[RequestRow]) -> dict[str, Any]:
    """Figures of one method; means and percentiles are over the requests that came to a first token.

    Parameters
    ----------
    rows : sequence of RequestRow
        All issued requests of the method, at least one: each counts in the violation rate.
    """
    done = [row for row in rows if row.ttft_ms is not None]
    ttfts = [row.ttft_ms for row in done if row.ttft_ms is not None]
    violations = sum(row.violation for row in rows)
    levels: Counter[str] = Counter()
    for row in done:
        levels.update(row.levels)
    return {
        "requests": len(rows),
        "completed": len(done),
        "violations": violations,
        "slo_violation_rate": violations / len(rows),
        "ttft_ms": {"mean": _mean(ttfts), "p50": _percentile(ttfts, 0.5), "p95": _percentile(ttfts, 0.95)},
        "stages_ms": {stage: _mean([row.stages_ms[stage] for row in done]) for stage in STAGES},
        "bytes_mean": _mean([row.bytes for row in done]),
        "kl_mean": _mean([row.kl for row in done if row.kl is not None]),
        "agreement_mean": _mean([row.agreement for row in done if row.agreement is not None]),
        "dppl_mean": _mean([row.dppl for row in done if row.dppl is not None]),
        "link_mbps_mean": _mean([row.link_mbps for row in done if row.link_mbps is not None]),
        "levels": dict(sorted(levels.items())),
        "refused": sum(row.status == "refused" for row in rows),
        "fairness": jain_index([_satisfaction(row) for row in rows]),
        "request_goodput": _goodput(rows),
    }


def jain_index(shares: Sequence[float]) -> float | None:
    """Jain's index (DEC-TR-301, 1984): 1 if all have the same, 1/n if one has all; None if nobody has any."""
    squares = math.fsum(share * share for share in shares)
    return math.fsum(shares) ** 2 / (len(shares) * squares) if squares else None


def _satisfaction(row: RequestRow) -> float:
    """1 if the objective was met, the part of it that the request's time is if not, 0 without a first token."""
    return 0.0 if row.ttft_ms is None else min(1.0, row.slo_ms / row.ttft_ms)


def _goodput(rows: Sequence[RequestRow]) -> float | None:
    """Requests that met the objective by second of serving: from each batch's first arrival to its last end."""
    served_s = 0.0
    for batch in {row.batch for row in rows}:
        members = [row for row in rows if row.batch == batch]
        served_s += max(row.ended_s for row in members) - min(row.arrival_s for row in members)
    return sum(not row.violation for row in rows) / served_s if served_s > 0 else None


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def _percentile(values: Sequence[float], share: float) -> float | None:
    return percentile(values, share) if values else None
