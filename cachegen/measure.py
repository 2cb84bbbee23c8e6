"""Measure what this machine needs for prefill and decoding, so that controllers predict from facts."""

import time
from collections.abc import Sequence

from cachegen.estimates import RecomputeCost
from cachegen.loader import LoadCosts
from cachegen.model import LanguageModel

_ROUNDS = 2


def measure_costs(
    model: LanguageModel,
    context_ids: Sequence[int],
    chunk_tokens: int,
    question_ids: Sequence[int],
    decode_s: float,
) -> LoadCosts:
    """Prefill a context chunk by chunk, then a question, as a load does; the first round is warm-up.

    Parameters
    ----------
    context_ids : sequence of int
        Two chunks at least, better as long as the contexts to come.
    chunk_tokens : int
        Tokens per chunk.
    question_ids : sequence of int
        A question of usual length.
    decode_s : float
        Measured seconds to decode one chunk, part of the reserve.

    Returns
    -------
    LoadCosts
    """
    for _ in range(_ROUNDS):
        cache = model.new_cache(len(context_ids) + len(question_ids))
        measurements = []
        for first in range(0, len(context_ids), chunk_tokens):
            ids = context_ids[first : first + chunk_tokens]
            measurements.append((first, len(ids), _seconds_of_prefill(model, cache, ids)))
        question_s = _seconds_of_prefill(model, cache, question_ids)
    return LoadCosts(RecomputeCost.fit(measurements), reserve_s=decode_s + question_s)


def _seconds_of_prefill(model: LanguageModel, cache: object, token_ids: Sequence[int]) -> float:
    started_s = time.perf_counter()
    model.prefill(cache, token_ids)
    return time.perf_counter() - started_s
