"""Fit a unit's basis to the covariance of its channels in the space of equal harm."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import torch

from cachegen.codecs.basis import Basis, block_channels
from cachegen.codecs.units import runs_of_heads

# Channels of a block at most, where a head has no more. Smaller ones multiply less and code more.
BLOCK_CHANNELS = 1152
# Of all blocks' coefficients, those that a joint basis mixes.
LEAD_SHARE = 0.5
# Calibration tokens that each channel of a unit is worth when its covariance is drawn towards the diagonal.
SHRINK_TOKENS = 0.01

F64 = npt.NDArray[np.float64]


def fit_basis(
    covariance: torch.Tensor, halves: int, head_dim: int, num_tokens: int, *, in_stages: bool = True
) -> tuple[Basis, F64]:
    """Basis of a unit with all its coefficients, and their energies.

    Parameters
    ----------
    covariance : float32 tensor, ``(channels, channels)``
        Of so many tokens: it is drawn towards its diagonal by as much as they are too few for its size.
    halves : int
        See ``Basis``.
    head_dim : int
    num_tokens : int
    in_stages : bool
        Whether there are blocks at all. Only an ablation has one basis of all channels.
    """
    share = 1 / (1 + num_tokens / (SHRINK_TOKENS * len(covariance)))
    shrunk = torch.lerp(covariance, torch.diag(torch.diagonal(covariance)), share)
    shrunk = (shrunk + shrunk.T) / 2
    widths = block_widths(len(shrunk), halves, head_dim) if in_stages else [len(shrunk)]
    channels = block_channels(widths, halves)
    blocks, of_blocks = zip(*(_strongest_first(shrunk[at][:, at]) for at in channels), strict=True)
    if len(blocks) == 1:
        return Basis.of_one_block(blocks[0].half().numpy(), halves), of_blocks[0].double().numpy()
    leads = _leads(of_blocks)
    joint, of_joint = _strongest_first(
        _mixed(shrunk, [rows[:n] for rows, n in zip(blocks, leads, strict=True)], channels)
    )
    of_sources = [of_joint, *(energies[n:] for energies, n in zip(of_blocks, leads, strict=True))]
    sources = np.repeat(np.arange(len(of_sources)), [len(energies) for energies in of_sources]).astype(np.uint8)
    energies, order = torch.cat(of_sources).sort(descending=True, stable=True)
    basis = Basis(
        tuple(rows.half().numpy() for rows in blocks),
        np.array(leads, dtype=np.int32),
        joint.half().numpy(),
        sources[order.numpy()],
        halves,
    )
    return basis, energies.double().numpy()


def channels_by_energy(covariance: torch.Tensor, halves: int) -> tuple[Basis, F64]:
    """What :func:`fit_basis` returns, of rows that pick one channel each."""
    energies, order = torch.diagonal(covariance).clamp_min(0).sort(descending=True, stable=True)
    rows = np.eye(len(covariance), dtype=np.float16)[order.numpy()]
    return Basis.of_one_block(rows, halves), energies.double().numpy()


def block_widths(channels: int, halves: int, head_dim: int) -> list[int]:
    """Channels of each block of a unit with so many: as many whole heads as have room, and as equal as that allows."""
    of_head = halves * head_dim
    runs = runs_of_heads(channels // of_head, BLOCK_CHANNELS // of_head)
    return [of_head * (end - first) for first, end in pairwise(runs)]


def _strongest_first(covariance: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Orthonormal rows by falling energy, and their energies."""
    values, vectors = torch.linalg.eigh((covariance + covariance.T) / 2)
    return vectors.T.flip(0), values.flip(0).clamp_min(0)


def _leads(energies: Sequence[torch.Tensor]) -> list[int]:
    """How many of each block's coefficients are among those of all blocks with the most energy."""
    blocks = torch.from_numpy(np.repeat(np.arange(len(energies)), [len(each) for each in energies]))
    strongest = torch.cat(list(energies)).argsort(descending=True, stable=True)[: round(LEAD_SHARE * len(blocks))]
    counts: list[int] = torch.bincount(blocks[strongest], minlength=len(energies)).tolist()
    return counts


def _mixed(covariance: torch.Tensor, rows: Sequence[torch.Tensor], channels: Sequence[torch.Tensor]) -> torch.Tensor:
    """Covariance of these rows' coefficients, each block's of its own channels."""
    left = torch.cat([own @ covariance[at] for own, at in zip(rows, channels, strict=True)])
    return torch.cat([left[:, at] @ own.T for own, at in zip(rows, channels, strict=True)], dim=1)
