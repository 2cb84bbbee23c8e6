"""From rows of requests to the summary of a run: every figure of a report is computed here, from files alone."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from testbed.fidelity import percentile
from testbed.slo import attainment_sweep, count_violations, goodput, meets, split_by_oracle
from testbed.stats import mean_interval, percentile_interval, wilson_interval

SUMMARY_SCHEMA = 1
PERCENTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
STAGES = ("queue", "wait", "fetch", "decode", "recompute", "question_prefill")


@dataclass(frozen=True, kw_only=True)
class RequestRow:
    """One issued request under one method, as ``requests.csv`` has it.

    Parameters
    ----------
    status : str
        ``ok``, ``failed``, ``timed_out`` or ``aborted``.
    ttft_ms : float or None
        From the scheduled arrival to the first sampled token; None unless ``ok``.
    stages_ms : dict
        Of ``STAGES``; they sum to ``ttft_ms``. Empty unless ``ok``.
    bytes : int
        Received from the store: manifest, tokens and chunks.
    near_bytes : int
        Of these, from a cache near the inference host, which did not cross the shaped link.
    wasted_bytes : int or None
        Of ``bytes``, those of chunks' objects that were given up, broke off or were damaged, and all of a request
        without a first token; None where nobody counted them.
    kl, agreement, dppl : float or None
        Against the uncompressed cache, see ``testbed.quality``.
    score, score_name, answer : float or None, str, str
        Of the answer to the context's question, if it is known what is right, see ``testbed.scores``.
    reference_score : float or None
        Of the answer that the uncompressed cache gives to the same question.
    levels : dict
        Number of chunks by encoding, or ``recompute``.
    link_mbps : float or None
        Mean rate of the trace from arrival to the first token.
    oracle_ttft_ms : float or None
        Least TTFT of any rule that knows the trace; None where nobody worked it out.
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
    near_bytes: int = 0
    wasted_bytes: int | None = None
    kl: float | None = None
    agreement: float | None = None
    dppl: float | None = None
    score: float | None = None
    reference_score: float | None = None
    score_name: str = ""
    answer: str = ""
    levels: dict[str, int] = field(default_factory=dict)
    link_mbps: float | None = None
    error: str = ""
    oracle_ttft_ms: float | None = None
    batch: int = 0
    sharing: str = ""
    arrival_s: float = 0.0
    ended_s: float = 0.0

    @property
    def violation(self) -> bool:
        """Whether the objective was missed; a request without a first token misses it."""
        return not meets(self, self.slo_ms)


def summarize_method(rows: Sequence[RequestRow]) -> dict[str, Any]:
    """Figures of one method, each defined in docs/metrics.md.

    Means and percentiles are over the requests that came to a first token, but for the wasted bytes. Intervals are of
    95 %, ``[low, high]``; a bound that so few requests do not give is None.

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
    split = split_by_oracle(rows)
    return {
        "requests": len(rows),
        "completed": len(done),
        "violations": violations,
        "slo_violation_rate": violations / len(rows),
        "slo_violation_rate_interval": list(wilson_interval(violations, len(rows))),
        "violation_classes": count_violations(rows),
        # absent, not zero, where no oracle was run
        **({} if split is None else {"violations_by_oracle": split}),
        "slo_attainment": attainment_sweep(rows),
        "goodput": goodput(rows),
        "ttft_ms": {
            "mean": _mean(ttfts),
            **{name: percentile(ttfts, share) if ttfts else None for name, share in PERCENTILES.items()},
        },
        "ttft_ms_interval": {
            "mean": list(mean_interval(ttfts)),
            **{name: list(percentile_interval(ttfts, share)) for name, share in PERCENTILES.items()},
        },
        "stages_ms": {stage: _mean([row.stages_ms[stage] for row in done]) for stage in STAGES},
        "bytes_mean": _mean([row.bytes for row in done]),
        "near_bytes_mean": _mean([row.near_bytes for row in done]),
        # waste is where requests fail
        "wasted_bytes_mean": _mean([row.wasted_bytes for row in rows if row.wasted_bytes is not None]),
        "kl_mean": _mean([row.kl for row in done if row.kl is not None]),
        "agreement_mean": _mean([row.agreement for row in done if row.agreement is not None]),
        "dppl_mean": _mean([row.dppl for row in done if row.dppl is not None]),
        "score_mean": _mean([row.score for row in done if row.score is not None]),
        "scores": sorted({row.score_name for row in done if row.score_name}),
        "link_mbps_mean": _mean([row.link_mbps for row in done if row.link_mbps is not None]),
        "levels": dict(sorted(levels.items())),
        "fairness": _fairness(rows),
    }


def summarize_reference(rows: Sequence[RequestRow]) -> dict[str, Any]:
    """What the uncompressed cache scores on the same requests, whatever served them; empty where nothing is scored."""
    by_request = {row.request: row.reference_score for row in rows if row.reference_score is not None}
    return {"score_mean": _mean(list(by_request.values()))} if by_request else {}


def jain_index(shares: Sequence[float]) -> float | None:
    """Jain's index (DEC-TR-301, 1984): 1 if all have the same, 1/n if one has all; None if nobody has any."""
    squares = math.fsum(share * share for share in shares)
    return math.fsum(shares) ** 2 / (len(shares) * squares) if squares else None


def _fairness(rows: Sequence[RequestRow]) -> float | None:
    """None where no request met another: there was nothing to share."""
    sharers = Counter(row.batch for row in rows)
    if max(sharers.values()) < 2:
        return None
    return jain_index([_satisfaction(row) for row in rows])


def _satisfaction(row: RequestRow) -> float:
    """1 if the objective was met, the part of it that the request's time is if not, 0 without a first token."""
    return 0.0 if row.ttft_ms is None else min(1.0, row.slo_ms / row.ttft_ms)


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None
