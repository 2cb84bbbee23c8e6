"""What the log says of a decision, with all that it knew, and of a load that has ended."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from cachegen.chunk_progress import ChunkProgress
from cachegen.controllers import RECOMPUTE, Decision, LoadState


def decision_fields(decision: Decision, state: LoadState, estimator_name: str) -> dict[str, Any]:
    """Return the fields of a ``decision`` event; numbers that JSON cannot spell are ``None``."""
    return {
        "chunk": decision.index,
        "action": str(decision.action),
        "reason": decision.reason,
        "elapsed_s": state.elapsed_s,
        "deadline_s": state.deadline_s,
        "remaining_s": state.remaining_s,
        "estimator": estimator_name,
        "throughput_bps": state.throughput_bps,
        "rtt_s": state.rtt_s,
        "flying_bytes": state.flying_bytes,
        "ahead_bytes": state.ahead_bytes,
        "backlog_bytes": state.backlog_bytes,
        "compute_free_s": state.compute_free_s,
        "finish_s": dict(decision.finish_s),
        "planned_finish_s": decision.planned_finish_s,
    }


def loaded_fields(
    chunks: Sequence[ChunkProgress], deadline_s: float, wasted_bytes: int, ended_s: float
) -> dict[str, Any]:
    """Return the fields of the ``loaded`` event, which the decisions before it are judged by."""
    sizes_bytes: Counter[str] = Counter()
    for chunk in chunks:
        if chunk.source != RECOMPUTE:
            sizes_bytes[chunk.source] += chunk.received_bytes
    return {
        "ended_s": ended_s,
        "deadline_s": deadline_s,
        "bytes_by_encoding": dict(sizes_bytes),
        "wasted_bytes": wasted_bytes,
        "recomputed": [chunk.options.index for chunk in chunks if chunk.source == RECOMPUTE],
    }
