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


def fit_attention(features: Sequence[torch.Tensor], attention: torch.Tensor) -> tuple[list[torch.Tensor], float]:
    """Weights of the features of each unit whose sum, with the bias, predicts attention relative to its mean.

    Parameters
    ----------
    features : sequence of torch.Tensor
        ``(features, tokens)`` of each unit.
    attention : torch.Tensor
        ``(tokens,)``, log2 of squared attention; NaN where it is unknown.

    Returns
    -------
    list of torch.Tensor, float
        Weights ``(features,)`` of each unit, and the bias; all 0 if the known tokens are too few.
    """
    known = attention.isfinite()
    sizes = [len(part) for part in features]
    x = torch.cat([part[:, known] for part in features]).double().T
    if len(x) < _TOKENS_PER_FEATURE * x.shape[1]:
        return [torch.zeros(size) for size in sizes], 0.0
    mean, deviation = x.mean(dim=0), x.std(dim=0).clamp_min(1e-9)
    x = (x - mean) / deviation
    y = attention[known].double()
    gram = x.T @ x
    gram.diagonal().add_(_RIDGE)
    weights = torch.linalg.solve(gram, x.T @ (y - y.mean())) / deviation
    return list(weights.float().split(sizes)), -float(weights @ mean)
