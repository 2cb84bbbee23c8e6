"""How a model's keys and values go with its tokens: second moments of features of the tokens, and of both together."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class TokenFeatures:
    """Tables of features, a row for each token of the vocabulary.

    Parameters
    ----------
    own : float16 tensor, ``(vocabulary, n)``
        Of a token.
    previous : float16 tensor, ``(vocabulary, m)``
        Of the token before it.
    """

    own: torch.Tensor
    previous: torch.Tensor


class TokenMoments:
    """Gathers moments of tokens' features, ``n`` of a token and ``m`` of the one before it, and with channels.

    The latter take ``4 (n + m)`` bytes for each channel of K and V: 80 MB for a model of 11,520 elements a token and
    1,728 features; with 2,304, the most there are, 2.4 GB for one of 7B with 32 layers x 32 heads x 128, 0.6 GB with 8
    KV heads.

    Parameters
    ----------
    features : TokenFeatures
    channels : int
        Of K, and of V, of all layers.
    """

    def __init__(self, features: TokenFeatures, channels: int) -> None:
        self.features = features
        size = features.own.shape[1] + features.previous.shape[1]
        self._num_tokens = 0
        self._shift: torch.Tensor | None = None
        self._sums = torch.zeros(size, dtype=torch.float32)
        self._products = torch.zeros(size, size, dtype=torch.float32)
        self._with_channels = torch.zeros(2, size, channels, dtype=torch.float32)

    def add(self, x: torch.Tensor, ids: torch.Tensor) -> None:
        """Count tokens ``(2, tokens, channels)``; the ids begin with that of the token before them."""
        features = torch.cat([self.features.own[ids[1:]], self.features.previous[ids[:-1]]], dim=1).float()
        if self._shift is None:
            # near enough to the mean that no difference of large numbers is taken below
            self._shift = features.mean(dim=0)
        features -= self._shift
        self._num_tokens += len(features)
        self._sums += features.sum(dim=0)
        self._products.addmm_(features.T, features)
        for half, products in zip(x, self._with_channels, strict=True):
            products.addmm_(features.T, half)

    def means(self) -> torch.Tensor:
        """Of the features, ``(n + m,)``."""
        assert self._shift is not None
        return self._shift + self._drift()

    def covariance(self) -> torch.Tensor:
        """Of the features, ``(n + m, n + m)``."""
        return self._products / self._num_tokens - torch.outer(self._drift(), self._drift())

    def covariance_with(self, half: int, channels: slice, means: torch.Tensor) -> torch.Tensor:
        """Of the features with channels of K (0) or V (1) that have these means, ``(n + m, channels)``."""
        return self._with_channels[half][:, channels] / self._num_tokens - torch.outer(self._drift(), means)

    def _drift(self) -> torch.Tensor:
        """Mean of all tokens beyond the shift."""
        return self._sums / self._num_tokens
