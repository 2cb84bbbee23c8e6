"""From a sample of coefficients to the frequency tables of one level."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from cachegen.codecs.frequencies import build_tables
from cachegen.kernels import get_backend
from cachegen.kernels.tables import ALPHABET, ESCAPE, VALUE_OFFSET, FrequencyTables
from cachegen.kernels.uniform import SYMBOL_LARGEST

# Sample tokens that the prior, Laplace's distribution, weighs as much as.
PRIOR_TOKENS = 30.0
_SMALLEST_SIGMA = 1e-3

F64 = npt.NDArray[np.float64]


def count_coefficients(y: torch.Tensor, energies: F64, step: float) -> FrequencyTables:
    """Tables ``(1, coefficients)`` of a unit's coefficients at one level.

    Parameters
    ----------
    y : float32 tensor, ``(coefficients, tokens)``
        The sample.
    energies : float64 array, ``(coefficients,)``
        Variances, for the prior.
    """
    backend = get_backend("numba")
    counts = np.zeros((1, len(y), ALPHABET), dtype=np.uint32)
    largest = step * SYMBOL_LARGEST
    backend.count(backend.quantize_uniform(y.clamp(-largest, largest).numpy(), step)[None], counts)
    shares = laplace_shares(np.maximum(np.sqrt(energies) / step, _SMALLEST_SIGMA))
    counts[0] += np.rint(PRIOR_TOKENS * shares).astype(np.uint32)
    return build_tables(counts)


def join_units(units: Sequence[FrequencyTables]) -> FrequencyTables:
    """Tables of all units in one row."""
    return FrequencyTables(
        np.concatenate([unit.first for unit in units], axis=1),
        np.concatenate([unit.count for unit in units], axis=1),
        np.concatenate([unit.frequencies for unit in units]),
    )


def laplace_shares(sigmas: F64) -> F64:
    """Share of each alphabet index for Laplace-distributed values of these deviations in steps, ``(n, 256)``."""
    decay = np.exp(-np.sqrt(2) / sigmas)[:, None]
    magnitude = np.abs(np.arange(ESCAPE) - VALUE_OFFSET)
    nonzero = (1 - decay) / 2 * decay ** (magnitude - 0.5).clip(0)
    inside = np.where(magnitude == 0, 1 - np.sqrt(decay), nonzero)
    shares: F64 = np.concatenate([inside, 1 - inside.sum(axis=1, keepdims=True)], axis=1).clip(0)
    return shares
