"""What the reduction of a context gives: fewer entries of a KV cache than the context has tokens."""

from collections.abc import Callable
from dataclasses import dataclass

from cachegen import KVCache, LanguageModel

# From a model, the cache of a whole context, the share of it to keep, and the tokens that a pass may take at once.
Reduce = Callable[[LanguageModel, KVCache, float, int], KVCache]


@dataclass(frozen=True)
class Reduction:
    """A way to make a context smaller before any codec.

    Parameters
    ----------
    reduce : callable
        Returns a new cache; its ``skipped_tokens`` are set where the question goes to its original place.
    has_text : bool
        Whether what it leaves is a text, whose KV a prefill gives: only then can a chunk be recomputed.
    """

    reduce: Reduce
    has_text: bool


def kept(share: float, num_tokens: int) -> int:
    """Entries that a share of so many tokens means, at least two."""
    return min(num_tokens, max(2, round(share * num_tokens)))
