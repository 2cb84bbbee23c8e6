"""Fit the ``transform`` codec to a model: from moments of its cache to metric, bases, ranks and tables."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from cachegen.basis_fit import channels_by_energy, fit_basis
from cachegen.codebook_fit import CodebookFit
from cachegen.codecs.basis import Basis
from cachegen.codecs.token_references import TABLE_OFFSETS
from cachegen.codecs.transform_tables import TransformTables
from cachegen.codecs.units import Unit
from cachegen.coefficient_tables import count_coefficients, join_units
from cachegen.head_matrices import diagonal_blocks, times_heads
from cachegen.kernels.tables import FrequencyTables
from cachegen.kernels.uniform import GRID_STEPS
from cachegen.transform_moments import TransformMoments

# Of the harm that noise does in a layer, when its steps are set; 0.5 would be right if every harm added up.
HARM_POWER = 0.35
# No layer's harm is taken to be less than this share of the largest one.
LEAST_HARM = 1e-4
# Gradients say nothing about directions that none of the calibration texts asked for; errors there count this much.
LEAST_METRIC = 1e-4
# No layer's deviation is taken to be less than this share of the largest one.
LEAST_SIGMA = 1e-4
# A coefficient is dead if its standard deviation is below this share of the step.
DEAD_SHARE = 0.35

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]


def fit_transform(
    moments: TransformMoments,
    fisher: F32 | None = None,
    *,
    key_metric: bool = True,
    decorrelate: bool = True,
    codebook: bool = True,
    references: bool = True,
    in_stages: bool = True,
) -> TransformTables:
    """Parameters of the codec.

    Parameters
    ----------
    moments : TransformMoments
        Of one token at least.
    fisher : float32 array, ``(layers, 2, kv_heads, head_dim, head_dim)``, optional
        What errors in the keys and values of each head cost, see ``FisherInformation``; default: all alike.
    key_metric : bool
        Whether it also says how a key's directions compare. Only an ablation leaves them alike.
    decorrelate : bool
        Whether coefficients are those of a KLT. Only an ablation codes the channels themselves.
    codebook : bool
        Whether there is one, if the moments have features of tokens. Only an ablation leaves it out.
    references : bool
        Whether tokens are predicted from earlier ones, with a choice of tables. Only an ablation does without.
    in_stages : bool
        Whether bases have blocks, see ``fit_basis``.
    """
    table_reach = TABLE_OFFSETS[-1] if references else 0
    own = _key_covariances(moments)
    scales = _noise_scales(moments.sigmas(), None if fisher is None else _harms(moments, fisher, own))
    roots = _key_roots(own, fisher[:, 0] if fisher is not None and key_metric else None, scales[:, 0])
    value_scales = (1.0 / scales[:, 1]).astype(np.float32)
    weights = [_weights(moments, unit, roots, value_scales) for unit in moments.units]
    predicted = CodebookFit(moments, weights) if codebook and moments.tokens is not None else None
    if predicted is not None and predicted.tables.own.shape[1] == 0:
        # all calibration tokens are the same one
        predicted = None
    fit = (
        partial(fit_basis, head_dim=moments.shape.head_dim, num_tokens=moments.num_tokens, in_stages=in_stages)
        if decorrelate
        else channels_by_energy
    )
    units = [_fit_unit(moments, unit, weights[unit.index], predicted, fit, table_reach) for unit in moments.units]
    return TransformTables(
        moments.shape,
        moments.rotary,
        moments.means().numpy(),
        roots.numpy(),
        value_scales,
        tuple(unit.basis for unit in units),
        np.stack([unit.ranks for unit in units], axis=1).astype(np.int32),
        tuple(join_units(step) for step in zip(*(unit.tables for unit in units), strict=True)),
        None if predicted is None else predicted.codebook([unit.energies for unit in units]),
        moments.grouping,
        table_reach,
    )


class _FittedUnit(NamedTuple):
    """The basis of a unit, its coefficients' variances, and for each step of the grid rank and tables."""

    basis: Basis
    energies: F32
    ranks: list[int]
    tables: list[FrequencyTables]


def _fit_unit(
    moments: TransformMoments,
    unit: Unit,
    weights: torch.Tensor,
    predicted: CodebookFit | None,
    fit: Callable[..., tuple[Basis, F64]],
    table_reach: int,
) -> _FittedUnit:
    covariance = _congruent(moments.covariance(unit), weights)
    if predicted is not None:
        covariance += predicted.left_over(unit.index)
    basis, energies = fit(covariance, halves=len(unit.halves))
    del covariance
    ranks = [max(1, int((energies > (DEAD_SHARE * step) ** 2).sum())) for step in GRID_STEPS]
    # as it is stored, so that what follows sees what the codec will
    kept = basis.prefix(max(ranks))
    sample = times_heads(moments.sample(unit), weights)
    if predicted is not None:
        sample = sample - predicted.predicted_sample(unit.index)
    y = kept.project(sample)
    # a token's tables may be those of a coarser step than its own
    counted = [ranks[max(0, place - table_reach)] for place in range(len(GRID_STEPS))]
    tables = [
        count_coefficients(y[:rank], energies[:rank], step) for rank, step in zip(counted, GRID_STEPS, strict=True)
    ]
    return _FittedUnit(kept, energies[: kept.rank].astype(np.float32), ranks, tables)


def _key_covariances(moments: TransformMoments) -> torch.Tensor:
    """Of each head's keys, ``(layers, kv_heads, head_dim, head_dim)`` float64."""
    shape = moments.shape
    keys = [unit for unit in moments.units if 0 in unit.halves]
    # a unit's keys stand before its values
    own = [diagonal_blocks(moments.covariance(unit), shape.head_dim)[: unit.heads(shape.head_dim)] for unit in keys]
    return torch.cat(own).double().reshape(shape.num_layers, shape.num_kv_heads, shape.head_dim, shape.head_dim)


def _harms(moments: TransformMoments, fisher: F32, own: torch.Tensor) -> F64:
    """Cost of noise as large as a layer's own K, and as its V, ``(layers, 2)``.

    A key's noise is as its metric lets it be: as large as the key itself in the metric. A value's is alike in all
    directions.
    """
    of_keys, of_values = torch.from_numpy(fisher).double().unbind(dim=1)
    keys = (of_keys * own).sum(dim=(1, 2, 3))
    values = torch.diagonal(of_values, dim1=-2, dim2=-1).sum(dim=(1, 2)) * torch.from_numpy(moments.sigmas()[:, 1] ** 2)
    harms: F64 = torch.stack([keys, values], dim=1).numpy()
    return harms


def _noise_scales(sigmas: F64, harms: F64 | None) -> F64:
    """Relative size of the noise that each layer's K and V may get, ``(layers, 2)``."""
    largest = float(sigmas.max())
    sigmas = np.maximum(sigmas, largest * LEAST_SIGMA if largest > 0 else 1.0)
    if harms is None:
        return sigmas
    relative = np.maximum(harms, max(harms.max() * LEAST_HARM, 1e-30))
    relative /= np.exp(np.log(relative).mean())
    scales: F64 = sigmas * relative**-HARM_POWER
    return scales


def _key_roots(own: torch.Tensor, metrics: F32 | None, scales: F64) -> torch.Tensor:
    """Square roots of the metrics in units of the noise scales, ``(layers * kv_heads, head_dim, head_dim)``.

    ``own`` are the covariances of the keys.
    """
    alike = torch.eye(own.shape[-1], dtype=torch.float64).expand(own.shape)
    metric = alike if metrics is None else torch.from_numpy(metrics).double()
    # errors in the keys of a layer whose values are zero cost nothing, whatever their direction
    costs_nothing = torch.diagonal(metric, dim1=-2, dim2=-1).sum(dim=(1, 2)) <= 0
    metric = torch.where(costs_nothing[:, None, None, None], alike, metric)
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


def _congruent(covariance: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """``W C W'`` for the block-diagonal W of a unit's symmetric head matrices."""
    count, dim, _ = weights.shape
    left = torch.bmm(weights, covariance.reshape(count, dim, -1)).reshape(covariance.shape)
    return torch.bmm(weights, left.T.reshape(count, dim, -1)).reshape(covariance.shape)
