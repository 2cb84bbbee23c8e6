"""What calibration contexts say about a model's keys and values: means, covariances and a sample of tokens."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from cachegen.codecs.rotary import Rotary
from cachegen.codecs.transform import SINK_TOKENS
from cachegen.codecs.units import JOINT, Grouping, Unit, units_of
from cachegen.errors import InvalidInputError
from cachegen.kv import KVShape
from cachegen.token_moments import TokenFeatures, TokenMoments

# Tokens kept to count symbols on, spread over all contexts: 140 MB for a model of 11,520 elements a token.
SAMPLE_TOKENS = 6144
# Rows of products that are added at one time, each from its block on the diagonal on: hardly more than half of all.
_BLOCK_CHANNELS = 512

F64 = npt.NDArray[np.float64]


class TransformMoments:
    """Gathers second moments and a sample of tokens, in memory that does not grow with the contexts.

    A unit has 5,760 channels at most, so its moments take 133 MB; a sampled token takes 2 bytes an element:

    ====================================  ==================  =======
    model, layers x KV heads x head size  moments             sample
    ====================================  ==================  =======
    7B, 32 x 32 x 128                     47 units, 5.9 GB    3.2 GB
    8B grouped, 32 x 8 x 128              12 units, 1.4 GB    0.8 GB
    ====================================  ==================  =======

    ``TokenMoments`` says what features of tokens take, and a fit holds another 3 kB for each element of a token. Beside
    that it takes several times 133 MB, since it sees one unit's :meth:`covariance` at a time. The moments themselves
    cannot be gathered a few units at a time, unless all texts are run anew for each of them.

    Parameters
    ----------
    shape : KVShape
        The model's.
    rotary : Rotary
        How its keys turn.
    grouping : Grouping
        How channels make units.
    features : TokenFeatures, optional
        What is known of each token beforehand; default: nothing.
    """

    def __init__(
        self,
        shape: KVShape,
        rotary: Rotary,
        grouping: Grouping = JOINT,
        features: TokenFeatures | None = None,
    ) -> None:
        self.shape, self.rotary, self.grouping = shape, rotary, grouping
        self.units = units_of(shape, grouping)
        self.num_tokens = 0
        self._shift: torch.Tensor | None = None
        self._sums = torch.zeros(2, shape.num_layers * shape.channels, dtype=torch.float64)
        self._products = [torch.zeros(unit.channels, unit.channels) for unit in self.units]
        self.tokens = None if features is None else TokenMoments(features, shape.num_layers * shape.channels)
        # bfloat16 has the range, and a sample needs no more precision
        self._sample = _Sample(SAMPLE_TOKENS, torch.bfloat16)
        self._sample_ids = _Sample(SAMPLE_TOKENS, torch.int64)

    def add(self, kv: torch.Tensor, first_token: int, token_ids: Sequence[int] = ()) -> None:
        """Count a piece of a context, ``(num_layers, 2, tokens, kv_heads, head_dim)``; the sinks are skipped.

        ``token_ids`` are the whole context's, needed where there are features.
        """
        skipped = max(0, SINK_TOKENS - first_token)
        if kv.shape[2] <= skipped:
            return
        positions = np.arange(first_token + skipped, first_token + kv.shape[2])
        keys = self.rotary.apply(kv[:, 0, skipped:].float(), -positions)
        x = torch.stack([_flat(keys), _flat(kv[:, 1, skipped:].float())])
        if self._shift is None:
            # near enough to the mean that no difference of large numbers is taken below
            self._shift = x.mean(dim=1, keepdim=True)
        x -= self._shift
        self._sample.add(x)
        if self.tokens is not None:
            ids = self._ids(token_ids, positions)
            self.tokens.add(x, ids)
            self._sample_ids.add(torch.stack([ids[1:], ids[:-1]]))
        self.num_tokens += len(positions)
        self._sums += x.sum(dim=1, dtype=torch.float64)
        for unit, products in zip(self.units, self._products, strict=True):
            _add_products(products, unit.of(x))

    def _ids(self, token_ids: Sequence[int], positions: npt.NDArray[np.int64]) -> torch.Tensor:
        """Those of a piece, and of the token before it."""
        assert self.tokens is not None
        ids = torch.as_tensor(token_ids[positions[0] - 1 : positions[-1] + 1], dtype=torch.int64)
        vocabulary = len(self.tokens.features.own)
        if len(ids) != len(positions) + 1 or int(ids.min()) < 0 or int(ids.max()) >= vocabulary:
            raise InvalidInputError(
                f"the context's {len(token_ids)} token ids, below {vocabulary}, must reach to position {positions[-1]}"
            )
        return ids

    def means(self) -> torch.Tensor:
        """Of un-rotated keys and of values, ``(2, layers * channels)``."""
        assert self._shift is not None
        return self._shift[:, 0] + self._drift()

    def covariance(self, unit: Unit) -> torch.Tensor:
        """Of a unit's channels; made anew at each call, so that not all are held at one time."""
        drift = unit.of(self._drift())
        upper = self._products[unit.index].triu()
        products = upper + upper.triu(1).T
        return products.div_(self.num_tokens).sub_(torch.outer(drift, drift))

    def sigmas(self) -> F64:
        """Root of the mean variance of a channel of each layer's K and V, ``(layers, 2)``."""
        drift = self._drift()
        variances = torch.empty_like(drift)
        for unit, products in zip(self.units, self._products, strict=True):
            squares = torch.diagonal(products) / self.num_tokens - unit.of(drift).square()
            for half, own in unit.split(squares):
                variances[half, unit.first_channel : unit.end_channel] = own
        per_layer = variances.reshape(2, self.shape.num_layers, -1).double().mean(dim=2).T
        sigmas: F64 = per_layer.clamp_min(0).sqrt().numpy()
        return sigmas

    def sample(self, unit: Unit) -> torch.Tensor:
        """A unit's channels of some tokens without their mean, ``(tokens, channels)``."""
        return unit.of(self._sample.tokens()).float() - unit.of(self._drift())

    def sample_ids(self) -> torch.Tensor:
        """Ids of these tokens, and of the one before each, ``(2, tokens)``."""
        return self._sample_ids.tokens()

    def covariance_with_features(self, unit: Unit) -> torch.Tensor:
        """Of the features of tokens with a unit's channels, ``(features, channels)``."""
        assert self.tokens is not None
        channels = slice(unit.first_channel, unit.end_channel)
        drift = self._drift()
        return torch.cat([self.tokens.covariance_with(h, channels, drift[h, channels]) for h in unit.halves], dim=1)

    def _drift(self) -> torch.Tensor:
        """Mean of all tokens beyond the shift, ``(2, layers * channels)``."""
        return (self._sums / self.num_tokens).float()


def _add_products(products: torch.Tensor, x: torch.Tensor) -> None:
    """Add ``x' x`` to the upper triangle of a square matrix; what is below it says nothing."""
    for first in range(0, len(products), _BLOCK_CHANNELS):
        rows = slice(first, first + _BLOCK_CHANNELS)
        products[rows, first:].addmm_(x[:, rows].T, x[:, first:])


class _Sample:
    """At most so many tokens, evenly spread over all that were added."""

    def __init__(self, capacity: int, dtype: torch.dtype) -> None:
        self._capacity, self._dtype, self._stride, self._seen = capacity, dtype, 1, 0
        self._pieces: list[torch.Tensor] = []

    def add(self, x: torch.Tensor) -> None:
        first = -self._seen % self._stride
        # a copy: a view would keep all of x
        self._pieces.append(x[:, first :: self._stride].to(self._dtype, copy=True))
        self._seen += x.shape[1]
        while sum(piece.shape[1] for piece in self._pieces) > self._capacity:
            self._pieces = [torch.cat(self._pieces, dim=1)[:, ::2].clone()]
            self._stride *= 2

    def tokens(self) -> torch.Tensor:
        """All of them, along the second axis."""
        self._pieces = [torch.cat(self._pieces, dim=1)]
        return self._pieces[0]


def _flat(x: torch.Tensor) -> torch.Tensor:
    """``(layers, tokens, heads, dim)`` as ``(tokens, layers * heads * dim)``."""
    return x.transpose(0, 1).flatten(1)
