"""The basis of a unit of the ``transform`` codec: an orthonormal matrix that is a product of two sparse ones.

Each block of a unit's heads has a basis of its own. Of all blocks' coefficients those with the most energy, the
*leads*, are then mixed by a *joint* basis; the others are coded as they are. What channels far apart share is in the
leads, so that hardly more bits are needed than with one basis of all channels, and half as many multiplications.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import torch

from cachegen.errors import FormatError

# Of an orthonormal matrix, rounded to float16.
_LARGEST_ELEMENT = 1.01

F16 = npt.NDArray[np.float16]
I64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Basis:
    """Rows by falling energy; the coefficients of a unit are its products with the unit's channels.

    Parameters
    ----------
    blocks : tuple of float16 arrays, ``(rows, channels of the block)``
        Orthonormal rows of each block, the leads first.
    leads : int32 array, ``(blocks,)``
        How many of each block's rows are mixed.
    joint : float16 array, ``(rows, sum of leads)``
        Orthonormal rows that mix them, block after block; without a row where there are no leads.
    sources : uint8 array, ``(rank,)``
        Where each coefficient comes from: 0 from the joint basis, 1 from the first block, and so on; those of one
        source have the order that they have there.
    halves : int
        2 where the unit, and each block, has the keys of its heads and then their values; 1 where it has either.
    """

    blocks: tuple[F16, ...]
    leads: npt.NDArray[np.int32]
    joint: F16
    sources: npt.NDArray[np.uint8]
    halves: int

    @classmethod
    def of_one_block(cls, rows: F16, halves: int) -> Basis:
        """A matrix as it is."""
        joint = np.zeros((0, 0), dtype=np.float16)
        return cls((rows,), np.zeros(1, dtype=np.int32), joint, np.ones(len(rows), dtype=np.uint8), halves)

    @property
    def rank(self) -> int:
        """Number of coefficients."""
        return len(self.sources)

    def check(self) -> None:
        """FormatError if the arrays do not fit together, or are not orthonormal."""
        for name, rows in (("joint", self.joint), *((f"block {i}", block) for i, block in enumerate(self.blocks))):
            if rows.dtype != np.float16 or rows.ndim != 2:
                raise FormatError(f"{name} is {rows.dtype} {rows.shape}")
            if len(rows) > rows.shape[1]:
                raise FormatError(f"{name} has {len(rows)} rows of {rows.shape[1]} elements")
            # written so that NaN fails too
            if not bool((np.abs(rows) <= _LARGEST_ELEMENT).all()):
                raise FormatError(f"{name} is not orthonormal")
        if self.leads.dtype != np.int32 or self.leads.shape != (len(self.blocks),):
            raise FormatError(f"leads are {self.leads.dtype} {self.leads.shape}, of {len(self.blocks)} blocks")
        for index, (rows, lead) in enumerate(zip(self.blocks, self.leads.tolist(), strict=True)):
            if not 0 <= lead <= len(rows):
                raise FormatError(f"block {index} has {lead} leads of {len(rows)} rows")
        if self.sources.dtype != np.uint8 or self.sources.ndim != 1:
            raise FormatError(f"sources are {self.sources.dtype} {self.sources.shape}")
        leads = int(self.leads.sum(dtype=np.int64))
        if self.joint.shape[1] != leads or (leads == 0) != (len(self.joint) == 0):
            raise FormatError(f"joint is {self.joint.shape}, of {leads} leads")
        rows_of = [len(self.joint), *(len(block) - int(n) for block, n in zip(self.blocks, self.leads, strict=True))]
        if (counts := np.bincount(self.sources, minlength=len(rows_of)).tolist()) != rows_of:
            raise FormatError(f"sources occur {counts} times, there are {rows_of} rows")

    @property
    def in_stages(self) -> bool:
        """Whether it is more than the matrix of one block."""
        return len(self.blocks) > 1 or len(self.joint) > 0

    @cached_property
    def coefficients_of(self) -> tuple[I64, ...]:
        """Which coefficients each source has."""
        return tuple(np.flatnonzero(self.sources == source) for source in range(1 + len(self.blocks)))

    @cached_property
    def channels_of(self) -> tuple[torch.Tensor, ...]:
        """Which of the unit's channels each block has, int64."""
        return tuple(block_channels([rows.shape[1] for rows in self.blocks], self.halves))

    def prefix(self, rank: int) -> Basis:
        """The basis of the first so many coefficients."""
        sources = self.sources[:rank]
        of_joint, *of_blocks = np.bincount(sources, minlength=1 + len(self.blocks)).tolist()
        leads = self.leads if of_joint else np.zeros_like(self.leads)
        blocks = [
            block[lead : lead + count] if not of_joint else block[: lead + count]
            for block, lead, count in zip(self.blocks, self.leads, of_blocks, strict=True)
        ]
        return replace(
            self, blocks=tuple(blocks), leads=leads, joint=self.joint[:of_joint, : leads.sum()], sources=sources
        )

    def project(self, x: torch.Tensor) -> torch.Tensor:
        """Coefficients ``(rank, tokens)`` of a unit's channels ``(tokens, channels)``, float32."""
        of_blocks = [
            torch.from_numpy(rows).float() @ x[:, at].T for rows, at in zip(self.blocks, self.channels_of, strict=True)
        ]
        leads = torch.cat([y[:lead] for y, lead in zip(of_blocks, self.leads, strict=True)])
        mixed = torch.from_numpy(self.joint).float() @ leads
        rest = [y[lead:] for y, lead in zip(of_blocks, self.leads, strict=True)]
        y = mixed.new_empty((self.rank, mixed.shape[1]))
        for coefficients, values in zip(self.coefficients_of, (mixed, *rest), strict=True):
            y[torch.from_numpy(coefficients)] = values
        return y

    def restore(self, y: torch.Tensor) -> torch.Tensor:
        """The adjoint of :meth:`project`: channels ``(tokens, channels)`` of coefficients ``(rank, tokens)``."""
        of_joint, *of_blocks = (y[torch.from_numpy(coefficients)] for coefficients in self.coefficients_of)
        leads = torch.split(torch.from_numpy(self.joint).float().T @ of_joint, self.leads.tolist())
        x = y.new_empty((y.shape[1], sum(rows.shape[1] for rows in self.blocks)))
        for at, rows, *parts in zip(self.channels_of, self.blocks, leads, of_blocks, strict=True):
            x[:, at] = torch.cat(parts).T @ torch.from_numpy(rows).float()
        return x


def block_channels(widths: Sequence[int], halves: int) -> list[torch.Tensor]:
    """Which of a unit's channels each block has, int64, where they have so many: its part of each half."""
    edges = np.cumsum([0, *(width // halves for width in widths)]).tolist()
    spans = [torch.arange(first, end, device="cpu") for first, end in pairwise(edges)]
    return [torch.cat([span + half * edges[-1] for half in range(halves)]) for span in spans]
