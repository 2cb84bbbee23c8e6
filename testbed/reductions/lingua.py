"""Prompt compression by the model itself: tokens that it could have guessed are left out, as LLMLingua does it.

Jiang et al., LLMLingua, EMNLP 2023 (arXiv:2310.05736), iterative token-level prompt compression: the text is taken in
segments of 200 tokens; each segment's tokens are judged by their surprisal behind what was *kept* of the
segments before, and the most surprising ones stay. LLMLingua uses a small model for that and shares one budget among
instruction, demonstrations and question; here it is the served model, and the budget is the same for every segment of
the context. What is left is a text: it is prefilled from position 0 on, and the question follows it directly.
"""

import torch

from cachegen import KVCache, LanguageModel
from testbed.reductions.base import kept

_SEGMENT_TOKENS = 200


def reduce(model: LanguageModel, whole: KVCache, share: float, _chunk_tokens: int) -> KVCache:
    """See ``Reduction``."""
    small = model.new_cache(whole.num_tokens)
    next_logits: torch.Tensor | None = None
    for first in range(0, whole.num_tokens, _SEGMENT_TOKENS):
        segment = whole.token_ids[first : first + _SEGMENT_TOKENS]
        surprisal = _surprisal(model, small, segment, next_logits)
        # what all segments so far may have, less what they got: no rounding adds up
        count = kept(share, first + len(segment)) - small.num_tokens
        chosen = surprisal.topk(min(count, len(segment))).indices.sort().values
        next_logits = model.prefill(small, [segment[place] for place in chosen.tolist()])
    return small


def _surprisal(
    model: LanguageModel, small: KVCache, segment: list[int], next_logits: torch.Tensor | None
) -> torch.Tensor:
    """``-log p`` of a segment's tokens behind what was kept so far, ``[tokens]``; infinite for the very first one."""
    logits = model.continuation_logits(small, segment)[:-1]
    begins = torch.zeros_like(logits[:1]) if next_logits is None else next_logits[None].float()
    log_p = torch.log_softmax(torch.cat([begins, logits]), -1)
    surprisal = -log_p.gather(1, torch.tensor(segment, device=log_p.device)[:, None])[:, 0]
    if next_logits is None:
        surprisal[0] = torch.inf
    return surprisal
