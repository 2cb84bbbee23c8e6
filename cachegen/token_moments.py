"""How a model's keys and values go with its tokens: second moments of features of the tokens, and of both together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from cachegen.model import LanguageModel

# Dimensions of the embedding that are looked at; of a wider one, those of the largest energy over the vocabulary.
MAX_FEATURES = 768
_BLOCK_ROWS = 16384
_SEED = 0


def token_features(model: LanguageModel) -> torch.Tensor | None:
    """The model's input embedding with rows of one length, ``(vocabulary, at most 768)`` float16.

    None where the model has no embedding that is a plain table.
    """
    try:
        table = model.network.get_input_embeddings().weight
    except (AttributeError, NotImplementedError):
        return None
    if not isinstance(table, torch.Tensor) or table.ndim != 2:
        return None
    kept = _largest_directions(table) if table.shape[1] > MAX_FEATURES else torch.eye(table.shape[1])
    return torch.cat([(rows @ kept).mul_(kept.shape[1] ** 0.5).half() for rows in _blocks(table)])


def _blocks(table: torch.Tensor) -> Iterator[torch.Tensor]:
    """Rows of length 1, some at a time: all of them in float32 can take gigabytes."""
    for rows in table.detach().split(_BLOCK_ROWS):
        yield torch.nn.functional.normalize(rows.float().cpu(), dim=1)


def _largest_directions(table: torch.Tensor) -> torch.Tensor:
    """Orthonormal columns that keep most of the rows' energy, ``(dimensions, MAX_FEATURES)``."""
    products = torch.zeros(table.shape[1], table.shape[1])
    for rows in _blocks(table):
        products.addmm_(rows.T, rows)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(_SEED)
        return torch.svd_lowrank(products, q=MAX_FEATURES)[0]


class TokenMoments:
    """Gathers moments of a token's features and of those of the token before it, ``2 n`` in all, and with channels.

    The latter take ``8 n`` bytes for each channel of K and V: 53 MB for a model of 11,520 elements a token and 576
    features, 1.6 GB for one of 7B with 32 layers x 32 heads x 128, 0.4 GB with 8 KV heads.

    Parameters
    ----------
    features : tensor, ``(vocabulary, n)``
    channels : int
        Of K, and of V, of all layers.
    """

    def __init__(self, features: torch.Tensor, channels: int) -> None:
        self.features = features
        size = 2 * features.shape[1]
        self._num_tokens = 0
        self._sums = torch.zeros(size)
        self._products = torch.zeros(size, size)
        self._with_channels = torch.zeros(2, size, channels)

    def add(self, x: torch.Tensor, token_ids: Sequence[int]) -> None:
        """Count tokens ``(2, tokens, channels)``; the ids begin with that of the token before them."""
        ids = torch.as_tensor(token_ids)
        of_tokens = torch.cat([self.features[ids[1:]], self.features[ids[:-1]]], dim=1).float()
        self._num_tokens += len(of_tokens)
        self._sums += of_tokens.sum(dim=0)
        self._products.addmm_(of_tokens.T, of_tokens)
        for half, products in zip(x, self._with_channels, strict=True):
            products.addmm_(of_tokens.T, half)

    def means(self) -> torch.Tensor:
        """Of the features, ``(2 n,)``."""
        return self._sums / self._num_tokens

    def covariance(self) -> torch.Tensor:
        """Of the features, ``(2 n, 2 n)``."""
        return self._products / self._num_tokens - torch.outer(self.means(), self.means())

    def covariance_with(self, half: int, channels: slice, means: torch.Tensor) -> torch.Tensor:
        """Of the features with channels of K (0) or V (1) that have these means, ``(2 n, channels)``."""
        return self._with_channels[half][:, channels] / self._num_tokens - torch.outer(self.means(), means)
