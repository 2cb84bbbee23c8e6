"""How far a loaded KV cache's predictions are from the uncompressed one's, on the same following text."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import torch


@dataclass(frozen=True)
class Quality:
    """Compared over teacher-forced tokens.

    Parameters
    ----------
    kl : float
        Mean Kullback-Leibler divergence of the next-token distribution from the uncompressed cache's, nats.
    agreement : float
        Share of positions with the same most likely token.
    dppl : float
        Perplexity of the following text minus that under the uncompressed cache.
    """

    kl: float
    agreement: float
    dppl: float

    def to_json(self) -> dict[str, float]:
        """As a dict."""
        return asdict(self)


def compare_logits(reference: torch.Tensor, loaded: torch.Tensor, next_ids: Sequence[int]) -> Quality:
    """Compare the logits after the same tokens under two caches.

    Parameters
    ----------
    reference, loaded : torch.Tensor
        ``[positions, vocabulary]``.
    next_ids : sequence of int
        The token that really follows each position.
    """
    p, q = torch.log_softmax(reference.double(), -1), torch.log_softmax(loaded.double(), -1)
    targets = torch.tensor(list(next_ids), device=p.device)[:, None]
    perplexity = [log.gather(1, targets).neg().mean().exp().item() for log in (p, q)]
    shares = p.exp()
    # a token that the model rules out by a logit of -inf weighs nothing; what is no number stays none
    divergence = torch.where(shares == 0, 0.0, shares * (p - q)).sum(-1).mean()
    return Quality(
        # rounding can leave a hair below zero, which no divergence is
        kl=divergence.clamp_min(0.0).item(),
        agreement=(p.argmax(-1) == q.argmax(-1)).double().mean().item(),
        dppl=perplexity[1] - perplexity[0],
    )
