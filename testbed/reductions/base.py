"""What the reduction of a context gives: fewer entries of a KV cache than the context has tokens."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cachegen import KVCache, LanguageModel


@dataclass(frozen=True)
class Reduction:
    """A way to make a context smaller before any codec.

    Parameters
    ----------
    module : str
        Where its function ``reduce`` is, of a model, the cache of a whole context, the share of it to keep, and the
        tokens that a pass may take at once.
    has_text : bool
        Whether what it leaves is a text, whose KV a prefill gives: only then can a chunk be recomputed.
    """

    module: str
    has_text: bool

    def reduce(self, model: LanguageModel, cache: KVCache, share: float, chunk_tokens: int) -> KVCache:
        """Return a new cache; its ``skipped_tokens`` are set where the question goes to its original place."""
        reduced: KVCache = import_module(self.module).reduce(model, cache, share, chunk_tokens)
        return reduced


def kept(share: float, num_tokens: int) -> int:
    """Entries that a share of so many tokens means, at least two."""
    return min(num_tokens, max(2, round(share * num_tokens)))
