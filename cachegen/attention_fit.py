"""Fit what a token's keys and values say about the attention it will get."""

from __future__ import annotations

from collections.abc import Sequence

import torch

# The most energetic coefficients of each unit say most of it.
FEATURES_PER_UNIT = 150
# Of ridge regression on features of unit variance.
_RIDGE = 300.0
# Tokens of known attention for each feature, at least.
_TOKENS_PER_FEATURE = 4


def fit_attention(features: Sequence[torch.Tensor], attention: torch.Tensor) -> list[torch.Tensor]:
    """Weights of the features of each unit whose sum predicts attention, but for a constant.

    Parameters
    ----------
    features : sequence of torch.Tensor
        ``(features, tokens)`` of each unit.
    attention : torch.Tensor
        ``(tokens,)``, log2 of squared attention; NaN where it is unknown.

    Returns
    -------
    list of torch.Tensor
        Weights ``(features,)`` of each unit; all 0 if the known tokens are too few.
    """
    known = attention.isfinite()
    sizes = [len(part) for part in features]
    x = torch.cat([part[:, known] for part in features]).double().T
    if len(x) < _TOKENS_PER_FEATURE * x.shape[1]:
        return [torch.zeros(size) for size in sizes]
    deviation = x.std(dim=0).clamp_min(1e-9)
    x = (x - x.mean(dim=0)) / deviation
    y = attention[known].double()
    gram = x.T @ x
    gram.diagonal().add_(_RIDGE)
    weights = torch.linalg.solve(gram, x.T @ (y - y.mean())) / deviation
    return list(weights.float().split(sizes))
