"""Measure what prefill costs on this machine, so that controllers predict from facts."""

import time
from collections.abc import Sequence

from cachegen.chunking import chunk_spans
from cachegen.errors import InvalidInputError
from cachegen.kv_cache import KVCache
from cachegen.model import LanguageModel
from cachegen.recompute_cost import RecomputeCost


def measure_recompute(model: LanguageModel, context_ids: Sequence[int], chunk_tokens: int) -> RecomputeCost:
    """Prefill a context chunk by chunk, as a load does, and fit what a prefill costs by prefix and length.

    The model should have run before: a first pass is slower than those that follow.

    Parameters
    ----------
    context_ids : sequence of int
        At least two tokens, better as many as the contexts to come.
    chunk_tokens : int
        Tokens per chunk.

    Raises
    ------
    InvalidInputError
        Fewer than two context tokens: the terms of the cost could not be told apart.
    """
    if len(context_ids) < 2:
        raise InvalidInputError(f"measuring prefill needs two tokens at least, not {len(context_ids)}")
    cache = model.new_cache(len(context_ids))
    spans = chunk_spans(len(context_ids), chunk_tokens)
    seconds = [_prefill_s(model, cache, context_ids[first:end]) for first, end in spans]
    # The first chunk once more, in halves: lengths must vary for the fit to have one solution.
    cache.truncate(0)
    halves = chunk_spans(spans[0][1], -(-spans[0][1] // 2))
    seconds += [_prefill_s(model, cache, context_ids[first:end]) for first, end in halves]
    return RecomputeCost.fit(
        (first, end - first, spent_s) for (first, end), spent_s in zip(spans + halves, seconds, strict=True)
    )


def _prefill_s(model: LanguageModel, cache: KVCache, token_ids: Sequence[int]) -> float:
    started_s = time.perf_counter()
    model.prefill(cache, token_ids)
    return time.perf_counter() - started_s
