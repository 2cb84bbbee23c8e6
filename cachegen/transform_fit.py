"""Fit the ``transform`` codec to a model: from moments of its cache to metric, bases, ranks and tables."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from cachegen.codebook_fit import CodebookFit
from cachegen.codecs.token_references import TABLE_OFFSETS
from cachegen.codecs.transform_tables import TransformTables
from cachegen.codecs.units import Unit
from cachegen.coefficient_tables import count_coefficients, join_units
from cachegen.head_matrices import diagonal_blocks, times_heads
from cachegen.kernels.uniform import GRID_STEPS
from cachegen.transform_moments import TransformMoments

# Of the sensitivities, when steps are set; 0.5 would be right if every harm added up. Measured to be best.
SENSITIVITY_POWER = 0.35
# No layer is taken to be less sensitive than this share of the most sensitive one: less cannot be measured.
LEAST_HARM = 0.005
# Queries say nothing about directions that none of the calibration texts asked for; errors there count this much.
LEAST_METRIC = 1e-4
# No layer's deviation is taken to be less than this share of the largest one.
LEAST_SIGMA = 1e-4
# A coefficient is dead if its standard deviation is below this share of the step.
DEAD_SHARE = 0.35
# Calibration tokens that each channel of a unit is worth when its covariance is drawn towards the diagonal.
SHRINK_TOKENS = 0.01

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]


def fit_transform(
    moments: TransformMoments,
    key_metrics: F32 | None = None,
    sensitivities: F32 | None = None,
    *,
    decorrelate: bool = True,
    codebook: bool = True,
    references: bool = True,
) -> TransformTables:
    """Parameters of the codec.

    Parameters
    ----------
    moments : TransformMoments
        Of one token at least.
    key_metrics : float32 array, ``(layers * kv_heads, head_dim, head_dim)``, optional
        Second moments of what queries see of the keys, see ``QueryMoments``; default: all alike.
    sensitivities : float32 array, ``(layers, 2)``, optional
        Harm of noise in one layer's K or V relative to its own size; default: all alike.
    decorrelate : bool
        Whether coefficients are those of a KLT. Only an ablation codes the channels themselves.
    codebook : bool
        Whether there is one, if the moments have features of tokens. Only an ablation leaves it out.
    references : bool
        Whether tokens are predicted from earlier ones, with a choice of tables. Only an ablation does without.
    """
    table_reach = TABLE_OFFSETS[-1] if references else 0
    scales = _noise_scales(moments.sigmas(), sensitivities)
    roots = _key_roots(moments, key_metrics, scales[:, 0])
    value_scales = (1.0 / scales[:, 1]).astype(np.float32)
    weights = [_weights(moments, unit, roots, value_scales) for unit in moments.units]
    predicted = CodebookFit(moments, weights) if codebook and moments.tokens is not None else None
    if predicted is not None and predicted.tables.own.shape[1] == 0:
        # all calibration tokens are the same one
        predicted = None
    bases, units, kept_energies, all_ranks = [], [], [], []
    for unit in moments.units:
        covariance = _congruent(moments.covariance(unit), weights[unit.index])
        if predicted is not None:
            covariance += predicted.left_over(unit.index)
        basis, energies = _basis(covariance, moments.num_tokens) if decorrelate else _channels_by_energy(covariance)
        ranks = [max(1, int((energies > (DEAD_SHARE * step) ** 2).sum())) for step in GRID_STEPS]
        # as it is stored, so that what follows sees what the codec will
        kept = basis[: max(ranks)].half()
        sample = times_heads(moments.sample(unit), weights[unit.index]).T
        if predicted is not None:
            sample = sample - predicted.predicted_sample(unit.index).T
        y = kept.float() @ sample
        bases.append(kept.numpy())
        kept_energies.append(energies[: len(kept)].astype(np.float32))
        # a token's tables may be those of a coarser step than its own
        counted = [ranks[max(0, place - table_reach)] for place in range(len(GRID_STEPS))]
        units.append(
            [
                count_coefficients(y[:rank], energies[:rank], step)
                for rank, step in zip(counted, GRID_STEPS, strict=True)
            ]
        )
        all_ranks.append(ranks)
    return TransformTables(
        moments.shape,
        moments.rotary,
        moments.means().numpy(),
        roots.numpy(),
        value_scales,
        tuple(bases),
        np.array(all_ranks, dtype=np.int32).T,
        tuple(join_units(step) for step in zip(*units, strict=True)),
        None if predicted is None else predicted.codebook(kept_energies),
        moments.grouping,
        table_reach,
    )


def _noise_scales(sigmas: F64, sensitivities: F32 | None) -> F64:
    """Relative size of the noise that each layer's K and V may get, ``(layers, 2)``."""
    largest = float(sigmas.max())
    sigmas = np.maximum(sigmas, largest * LEAST_SIGMA if largest > 0 else 1.0)
    if sensitivities is None:
        return sigmas
    harms = sensitivities.astype(np.float64)
    relative = np.maximum(harms, max(harms.max() * LEAST_HARM, 1e-12))
    relative /= np.exp(np.log(relative).mean())
    scales: F64 = sigmas * relative**-SENSITIVITY_POWER
    return scales


def _key_roots(moments: TransformMoments, metrics: F32 | None, scales: F64) -> torch.Tensor:
    """Square roots of the metrics in units of the noise scales, ``(layers * kv_heads, head_dim, head_dim)``."""
    layers, heads, dim = moments.shape.num_layers, moments.shape.num_kv_heads, moments.shape.head_dim
    size = (layers, heads, dim, dim)
    metric = torch.eye(dim).expand(size) if metrics is None else torch.from_numpy(metrics).reshape(size)
    metric = metric.double()
    keys = [unit for unit in moments.units if 0 in unit.halves]
    # a unit's keys stand before its values
    own = torch.cat([diagonal_blocks(moments.covariance(unit), dim)[: _heads(unit, dim)] for unit in keys])
    own = own.double().reshape(size)
    energy = torch.diagonal(own, dim1=-2, dim2=-1).sum(dim=(1, 2))
    weighted = (metric * own).sum(dim=(1, 2, 3))
    # so that the metric says how a layer's directions compare, and the scales how layers do
    factor = torch.where((weighted > 0) & (energy > 0), energy / weighted, 1.0)
    values, vectors = torch.linalg.eigh(metric * factor[:, None, None, None])
    values = values.clamp_min(1e-30).clamp_min(values.amax(dim=(1, 2), keepdim=True) * LEAST_METRIC)
    roots = vectors @ torch.diag_embed(values.sqrt()) @ vectors.transpose(-1, -2)
    result: torch.Tensor = (roots / torch.from_numpy(scales)[:, None, None, None]).flatten(0, 1).float()
    return result


def _weights(moments: TransformMoments, unit: Unit, roots: torch.Tensor, value_scales: F32) -> torch.Tensor:
    """What maps a unit's channels to the space of equal harm, a matrix for each head."""
    dim = moments.shape.head_dim
    heads = slice(unit.first_channel // dim, unit.end_channel // dim)
    scales = torch.from_numpy(np.repeat(value_scales, moments.shape.num_kv_heads)[heads])
    of_half = (roots[heads], torch.eye(dim) * scales[:, None, None])
    return torch.cat([of_half[half] for half in unit.halves])


def _heads(unit: Unit, dim: int) -> int:
    """Heads of which a unit has the keys, or the values, or both."""
    return (unit.end_channel - unit.first_channel) // dim


def _congruent(covariance: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """``W C W'`` for the block-diagonal W of a unit's symmetric head matrices."""
    count, dim, _ = weights.shape
    left = torch.bmm(weights, covariance.reshape(count, dim, -1)).reshape(covariance.shape)
    return torch.bmm(weights, left.T.reshape(count, dim, -1)).reshape(covariance.shape)


def _basis(covariance: torch.Tensor, num_tokens: int) -> tuple[torch.Tensor, F64]:
    """Orthonormal rows by falling energy, and their energies.

    The covariance is drawn towards its diagonal by as much as the tokens are too few for its size.
    """
    share = 1 / (1 + num_tokens / (SHRINK_TOKENS * len(covariance)))
    shrunk = torch.lerp(covariance, torch.diag(torch.diagonal(covariance)), share)
    values, vectors = torch.linalg.eigh((shrunk + shrunk.T) / 2)
    return vectors.T.flip(0), values.flip(0).clamp_min(0).double().numpy()


def _channels_by_energy(covariance: torch.Tensor) -> tuple[torch.Tensor, F64]:
    """What ``_basis`` returns, of rows that pick one channel each."""
    energies, order = torch.diagonal(covariance).clamp_min(0).sort(descending=True, stable=True)
    return torch.eye(len(covariance))[order], energies.double().numpy()
