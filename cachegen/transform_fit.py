"""Fit the ``transform`` codec to a model: statistics of calibration contexts in, bases, ranks and tables out."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from cachegen.codecs.frequencies import build_tables
from cachegen.codecs.rotary import Rotary
from cachegen.codecs.transform import SINK_TOKENS
from cachegen.codecs.transform_tables import TransformTables, Unit, units_of
from cachegen.kernels import get_backend
from cachegen.kernels.tables import ALPHABET, ESCAPE, VALUE_OFFSET, FrequencyTables
from cachegen.kernels.uniform import LEVEL_STEPS, SYMBOL_LARGEST
from cachegen.kv import KVShape

# Tokens kept to count symbols on, spread over all contexts: 140 MB for a model of 11,520 elements a token.
SAMPLE_TOKENS = 6144
# Of the sensitivities, when steps are set; 0.5 would be right if every harm added up. Measured to be best.
SENSITIVITY_POWER = 0.35
# Queries say nothing about directions that none of the calibration texts asked for; errors there count this much.
LEAST_METRIC = 1e-4
# A coefficient is dead if its standard deviation is below this share of the step.
DEAD_SHARE = 0.25
# Calibration tokens that the prior of a table weighs as much as.
PRIOR_TOKENS = 30.0
LEAST_SIGMA = 1e-4
# No layer is taken to be less sensitive than this share of the most sensitive one: less cannot be measured.
LEAST_HARM = 0.005

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]


class TransformFitter:
    """Gathers second moments and a sample of tokens, in memory that does not grow with the contexts.

    Parameters
    ----------
    shape : KVShape
        The model's.
    rotary : Rotary
        How its keys turn.
    """

    def __init__(self, shape: KVShape, rotary: Rotary) -> None:
        self._shape, self._rotary = shape, rotary
        self._units = units_of(shape)
        self._count = 0
        self._shift: torch.Tensor | None = None
        self._sums = torch.zeros(2, shape.num_layers * shape.channels, dtype=torch.float64)
        self._moments = [torch.zeros(unit.channels, unit.channels) for unit in self._units]
        self._sample = _Sample(SAMPLE_TOKENS)

    @property
    def num_tokens(self) -> int:
        """Tokens counted so far, sinks left out."""
        return self._count

    def add(self, kv: torch.Tensor, first_token: int) -> None:
        """Count a piece of a context, ``(num_layers, 2, tokens, kv_heads, head_dim)``; the sinks are skipped."""
        skipped = max(0, SINK_TOKENS - first_token)
        if kv.shape[2] <= skipped:
            return
        positions = np.arange(first_token + skipped, first_token + kv.shape[2])
        keys = self._rotary.apply(kv[:, 0, skipped:].float(), -positions)
        x = torch.stack([_flat(keys), _flat(kv[:, 1, skipped:].float())])
        if self._shift is None:
            # near enough to the mean that no difference of large numbers is taken below
            self._shift = x.mean(dim=1, keepdim=True)
        self._sample.add(x)
        x -= self._shift
        self._count += len(positions)
        self._sums += x.sum(dim=1, dtype=torch.float64)
        for unit, moments in zip(self._units, self._moments, strict=True):
            part = _columns(x, unit)
            moments.addmm_(part.T, part)

    def sigmas(self) -> F64:
        """Root of the mean variance of a channel of each layer's K and V, ``(layers, 2)``."""
        return np.sqrt(self._variances(self._covariances()))

    def fit(self, key_metrics: F32 | None = None, sensitivities: F32 | None = None) -> TransformTables:
        """Parameters from all that was added.

        Parameters
        ----------
        key_metrics : float32 array, ``(layers * kv_heads, head_dim, head_dim)``, optional
            Second moments of what queries see of the keys, see ``QueryMoments``; default: all alike.
        sensitivities : float32 array, ``(layers, 2)``, optional
            Harm of noise in one layer's K or V relative to its own size; default: all alike.
        """
        assert self._shift is not None
        covariances = self._covariances()
        means = self._shift[:, 0] + self._drift()
        variances = self._variances(covariances)
        scales = _noise_scales(variances, sensitivities)
        roots = self._key_roots(covariances, key_metrics, scales[:, 0])
        value_scales = (1.0 / scales[:, 1]).astype(np.float32)
        bases, ranks, tables = [], [], []
        for unit, covariance in zip(self._units, covariances, strict=True):
            weights = self._weights(unit, roots, value_scales)
            basis, energies = _basis(_congruent(covariance, weights), self._count)
            unit_ranks = np.array([max(1, int((energies > (DEAD_SHARE * s) ** 2).sum())) for s in LEVEL_STEPS])
            kept = basis[: unit_ranks.max()].half()
            sample = _columns(self._sample.tokens() - means[:, None], unit)
            y = kept.float() @ torch.einsum("tcd,cde->tce", _heads(sample, weights), weights).flatten(1).T
            bases.append(kept.numpy())
            ranks.append(unit_ranks)
            tables.append(
                [_count(y[:rank], energies[:rank], step) for rank, step in zip(unit_ranks, LEVEL_STEPS, strict=True)]
            )
        return TransformTables(
            self._shape,
            self._rotary,
            means.numpy(),
            roots.numpy(),
            value_scales,
            tuple(bases),
            np.stack(ranks, axis=1).astype(np.int32),
            tuple(_joined([unit[level] for unit in tables]) for level in range(len(LEVEL_STEPS))),
        )

    def _drift(self) -> torch.Tensor:
        """Mean of all tokens beyond the shift, ``(2, layers * channels)``."""
        return (self._sums / self._count).float()

    def _covariances(self) -> list[torch.Tensor]:
        drift = self._drift()
        return [
            moments / self._count - torch.outer(_columns(drift, unit), _columns(drift, unit))
            for unit, moments in zip(self._units, self._moments, strict=True)
        ]

    def _variances(self, covariances: list[torch.Tensor]) -> F64:
        """Mean variance of a channel, ``(layers, 2)``."""
        halves = [
            [torch.diagonal(c) for unit, c in zip(self._units, covariances, strict=True) if unit.is_value == h]
            for h in (False, True)
        ]
        flat = torch.stack([torch.cat(half) for half in halves])
        return flat.reshape(2, self._shape.num_layers, -1).mean(dim=2).T.double().clamp_min(0).numpy()

    def _key_roots(self, covariances: list[torch.Tensor], metrics: F32 | None, scales: F64) -> torch.Tensor:
        """Square roots of the metrics in units of the noise scales, ``(layers * kv_heads, head_dim, head_dim)``."""
        layers, heads, dim = self._shape.num_layers, self._shape.num_kv_heads, self._shape.head_dim
        metric = torch.eye(dim).expand(layers * heads, dim, dim) if metrics is None else torch.from_numpy(metrics)
        metric = metric.double().reshape(layers, heads, dim, dim)
        blocks = (
            torch.cat(
                [
                    _diagonal_blocks(c, dim)
                    for unit, c in zip(self._units, covariances, strict=True)
                    if not unit.is_value
                ]
            )
            .double()
            .reshape(layers, heads, dim, dim)
        )
        energy = torch.diagonal(blocks, dim1=-2, dim2=-1).sum(dim=(1, 2))
        weighted = (metric * blocks).sum(dim=(1, 2, 3))
        # so that the metric says how a layer's directions compare, and the scales how layers do
        factor = torch.where((weighted > 0) & (energy > 0), energy / weighted, 1.0)
        values, vectors = torch.linalg.eigh(metric * factor[:, None, None, None])
        values = values.clamp_min(1e-30).clamp_min(values.amax(dim=(1, 2), keepdim=True) * LEAST_METRIC)
        roots: torch.Tensor = vectors @ torch.diag_embed(values.sqrt()) @ vectors.transpose(-1, -2)
        roots = roots / torch.from_numpy(scales)[:, None, None, None]
        result: torch.Tensor = roots.reshape(layers * heads, dim, dim).float()
        return result

    def _weights(self, unit: Unit, roots: torch.Tensor, value_scales: F32) -> torch.Tensor:
        """What maps a unit's channels to the space of equal harm, a matrix for each head."""
        dim = self._shape.head_dim
        heads = slice(unit.first_channel // dim, unit.end_channel // dim)
        if not unit.is_value:
            return roots[heads]
        scales = np.repeat(value_scales, self._shape.num_kv_heads)[heads]
        return torch.eye(dim) * torch.from_numpy(scales)[:, None, None]


class _Sample:
    """At most so many tokens, evenly spread over all that were added."""

    def __init__(self, capacity: int) -> None:
        self._capacity, self._stride, self._seen = capacity, 1, 0
        self._pieces: list[torch.Tensor] = []

    def add(self, x: torch.Tensor) -> None:
        first = -self._seen % self._stride
        # bfloat16 has the range, and a sample needs no more precision
        self._pieces.append(x[:, first :: self._stride].bfloat16())
        self._seen += x.shape[1]
        while sum(piece.shape[1] for piece in self._pieces) > self._capacity:
            self._pieces = [torch.cat(self._pieces, dim=1)[:, ::2].clone()]
            self._stride *= 2

    def tokens(self) -> torch.Tensor:
        return torch.cat(self._pieces, dim=1).float()


def _flat(x: torch.Tensor) -> torch.Tensor:
    """``(layers, tokens, heads, dim)`` as ``(tokens, layers * heads * dim)``."""
    return x.transpose(0, 1).flatten(1)


def _columns(x: torch.Tensor, unit: Unit) -> torch.Tensor:
    """A unit's channels of ``(2, ..., channels of K or V)``."""
    return x[int(unit.is_value)][..., unit.first_channel : unit.end_channel]


def _heads(x: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    return x.reshape(len(x), len(weights), -1)


def _diagonal_blocks(matrix: torch.Tensor, dim: int) -> torch.Tensor:
    return torch.stack([matrix[i : i + dim, i : i + dim] for i in range(0, len(matrix), dim)])


def _noise_scales(variances: F64, sensitivities: F32 | None) -> F64:
    """Relative size of the noise that each layer's K and V may get, ``(layers, 2)``."""
    sigmas = np.sqrt(variances)
    largest = float(sigmas.max())
    sigmas = np.maximum(sigmas, largest * LEAST_SIGMA if largest > 0 else 1.0)
    if sensitivities is None:
        return sigmas
    harms = sensitivities.astype(np.float64)
    relative = np.maximum(harms, max(harms.max() * LEAST_HARM, 1e-12))
    relative /= np.exp(np.log(relative).mean())
    scales: F64 = sigmas * relative**-SENSITIVITY_POWER
    return scales


def _congruent(covariance: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """``W C W'`` for the block-diagonal W of a unit's symmetric head matrices."""
    count, dim, _ = weights.shape
    left = torch.bmm(weights, covariance.reshape(count, dim, -1)).reshape(covariance.shape)
    return torch.bmm(weights, left.T.reshape(count, dim, -1)).reshape(covariance.shape)


def _basis(covariance: torch.Tensor, num_tokens: int) -> tuple[torch.Tensor, F64]:
    """Orthonormal rows by falling energy, and their energies.

    The covariance is drawn towards its diagonal by as much as the tokens are too few for its size.
    """
    share = SHRINK * len(covariance) / (SHRINK * len(covariance) + num_tokens)
    shrunk = torch.lerp(covariance, torch.diag(torch.diagonal(covariance)), share)
    values, vectors = torch.linalg.eigh((shrunk + shrunk.T) / 2)
    return vectors.T.flip(0), values.flip(0).clamp_min(0).double().numpy()


SHRINK = 0.25


def _count(y: torch.Tensor, energies: F64, step: float) -> FrequencyTables:
    """Tables of a unit's coefficients at one level, from a sample ``y (coefficients, tokens)`` and a prior."""
    backend = get_backend("numba")
    counts = np.zeros((1, len(y), ALPHABET), dtype=np.int64)
    largest = step * SYMBOL_LARGEST
    backend.count(backend.quantize_uniform(y.clamp(-largest, largest).numpy(), step)[None], counts)
    counts[0] += np.rint(PRIOR_TOKENS * laplace_shares(np.sqrt(energies) / step)).astype(np.int64)
    return build_tables(counts)


def laplace_shares(sigmas: F64) -> F64:
    """Share of each alphabet index for Laplace-distributed values of these deviations in steps, ``(n, 256)``."""
    decay = np.exp(-np.sqrt(2) / np.maximum(sigmas, 1e-3))[:, None]
    distance = np.abs(np.arange(ESCAPE) - VALUE_OFFSET)
    inner = np.where(distance == 0, 1 - np.sqrt(decay), (1 - decay) / 2 * decay ** (distance - 0.5).clip(0))
    return np.concatenate([inner, 1 - inner.sum(axis=1, keepdims=True)], axis=1).clip(0)


def _joined(tables: list[FrequencyTables]) -> FrequencyTables:
    """One row of the tables of all units."""
    return FrequencyTables(
        np.concatenate([table.first for table in tables], axis=1),
        np.concatenate([table.count for table in tables], axis=1),
        np.concatenate([table.frequencies for table in tables]),
    )
