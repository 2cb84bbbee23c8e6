"""Fit the codebook of ``transform``: which directions of the tokens' features say most, and what they predict.

Reduced-rank regression: all features predict all channels by ridge regression; of what they predict, in the space of
equal harm and relative to what is left, the strongest directions become the codebook's features.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from cachegen.codecs.codebook import Codebook, FeatureTables
from cachegen.codecs.codebook_search import NOISE
from cachegen.head_matrices import diagonal_blocks, times_heads
from cachegen.transform_moments import TransformMoments

# Features of a token and of the one before it: more of them predict more, and take longer to decode.
OWN_FEATURES, PREVIOUS_FEATURES = 384, 128
# Calibration tokens without any relation of features and channels that the regressions count beside the real ones.
RIDGE_TOKENS = 600.0
# Features have variance 1 over the calibration texts; one unit of the codebook is a sixteenth.
FEATURE_UNIT = 1 / 16
_INT8_LARGEST, _HALF = 127, torch.finfo(torch.float16)
_TINY = 1e-12
_BLOCK_TOKENS = 16384


class CodebookFit:
    """What tokens say of their keys and values, fitted to a model's moments.

    Parameters
    ----------
    moments : TransformMoments
        With features of tokens.
    weights : sequence of tensors, ``(heads, head_dim, head_dim)``
        What maps each unit's channels to the space of equal harm.
    """

    def __init__(self, moments: TransformMoments, weights: Sequence[torch.Tensor]) -> None:
        assert moments.tokens is not None
        self._moments, self._tokens = moments, moments.tokens
        covariance = moments.tokens.covariance()
        self._directions = _strongest(moments, weights, covariance)
        self.tables = self._tables()
        mixed = _block_diagonal(*self._directions) / FEATURE_UNIT
        self._covariance = mixed.T @ covariance @ mixed
        ridge = _with_ridge(self._covariance, moments.num_tokens)
        self._with_channels = [
            mixed.T @ times_heads(moments.covariance_with_features(unit), weights[unit.index]) for unit in moments.units
        ]
        #: What is predicted of each unit, ``(features, channels)``, as it is stored.
        self.predictors = [
            torch.linalg.solve(ridge, with_channels).clamp(-_HALF.max, _HALF.max).half().contiguous()
            for with_channels in self._with_channels
        ]

    def left_over(self, index: int) -> torch.Tensor:
        """What the covariance of a unit's channels changes by when their prediction is taken off."""
        predictor, with_channels = self.predictors[index].float(), self._with_channels[index]
        shared = predictor.T @ with_channels
        change: torch.Tensor = predictor.T @ (self._covariance @ predictor) - shared - shared.T
        return change

    def predicted_sample(self, index: int) -> torch.Tensor:
        """Predictions of a unit's channels for the moments' sample, ``(tokens, channels)``."""
        predicted: torch.Tensor = self.tables.of(*self._moments.sample_ids()) @ self.predictors[index].float()
        return predicted

    def codebook(self, energies: Sequence[npt.NDArray[np.float32]]) -> Codebook:
        """The codebook; ``energies`` are the variances of each unit's coefficients."""
        return Codebook(
            self.tables.own.numpy(),
            self.tables.previous.numpy(),
            tuple(predictor.numpy() for predictor in self.predictors),
            tuple(energies),
        )

    def _tables(self) -> FeatureTables:
        """Features of every token, and of every token as the one before, in units of ``FEATURE_UNIT``."""
        features, (of_own, of_previous) = self._tokens.features, self._directions
        means, size = self._tokens.means(), len(of_own)
        own = _as_int8(features.own, means[:size], of_own)
        return FeatureTables(own, _as_int8(features.previous, means[size:], of_previous))


def _as_int8(table: torch.Tensor, means: torch.Tensor, directions: torch.Tensor) -> torch.Tensor:
    result = torch.empty((len(table), directions.shape[1]), dtype=torch.int8)
    for first in range(0, len(table), _BLOCK_TOKENS):
        part = slice(first, first + _BLOCK_TOKENS)
        features = (table[part].float() - means) @ (directions / FEATURE_UNIT)
        result[part] = features.round().clamp(-_INT8_LARGEST, _INT8_LARGEST).to(torch.int8)
    return result


def _block_diagonal(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    result = torch.zeros(len(first) + len(second), first.shape[1] + second.shape[1], dtype=torch.float32)
    result[: len(first), : first.shape[1]] = first
    result[len(first) :, first.shape[1] :] = second
    return result


def _strongest(
    moments: TransformMoments, weights: Sequence[torch.Tensor], covariance: torch.Tensor
) -> list[torch.Tensor]:
    """Directions of a token's features, and of those of the one before, by which most is predicted."""
    assert moments.tokens is not None
    ridge = torch.linalg.cholesky(_with_ridge(covariance, moments.num_tokens))
    explained = torch.zeros_like(covariance)
    for unit in moments.units:
        with_channels = times_heads(moments.covariance_with_features(unit), weights[unit.index])
        predictor = torch.cholesky_solve(with_channels, ridge)
        left = _variances(moments.covariance(unit), weights[unit.index])
        left += (predictor * (covariance @ predictor - 2 * with_channels)).sum(dim=0)
        # what is far above the noise of quantization costs bits by its logarithm
        predictor /= (left.clamp_min(0) + NOISE).sqrt()
        explained.addmm_(predictor, predictor.T)
    size = moments.tokens.features.own.shape[1]
    return [
        _directions(covariance[part, part], explained[part, part], most)
        for part, most in ((slice(size), OWN_FEATURES), (slice(size, None), PREVIOUS_FEATURES))
    ]


def _directions(covariance: torch.Tensor, explained: torch.Tensor, most: int) -> torch.Tensor:
    """Columns that make of features at most so many of variance 1 without correlation, what explains most first."""
    values, vectors = torch.linalg.eigh(covariance)
    real = values > values[-1] * 1e-6 + _TINY
    scale = vectors[:, real] * values[real].sqrt()
    _, order = torch.linalg.eigh(scale.T @ explained @ scale)
    strongest: torch.Tensor = (vectors[:, real] / values[real].sqrt()) @ order.flip(1)[:, :most]
    return strongest


def _with_ridge(covariance: torch.Tensor, num_tokens: int) -> torch.Tensor:
    ridge = RIDGE_TOKENS / num_tokens * torch.diagonal(covariance).mean() + _TINY
    return covariance + ridge * torch.eye(len(covariance), dtype=torch.float32)


def _variances(covariance: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Of a unit's channels in the space of equal harm."""
    blocks = diagonal_blocks(covariance, weights.shape[1])
    return torch.diagonal(weights @ blocks @ weights, dim1=1, dim2=2).flatten()
