"""Find the codebook's entries for a chunk's tokens: those whose own features leave the least to code.

What is left is measured as its coefficients are coded: each divided by its variance, see ``Codebook``. That is done for
all channels, whatever a level codes of them, so that a chunk has the same entries at all levels.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from cachegen.codecs.basis import Basis
from cachegen.codecs.codebook import Codebook

# Variance, in units of the space of equal harm, below which less of it saves no bits; about that of a common step.
NOISE = 0.1
# Entries compared with so many tokens at one time: 16 MB.
_BLOCK_ENTRIES, _BLOCK_TOKENS = 8192, 512
# Directions in which all entries are compared, and entries of each token that are then compared in all: what a full
# search finds, in a tenth of the time.
_TELLING_DIRECTIONS, _CANDIDATES = 48, 8


class CodebookSearch:
    """What the search needs of a profile: 1.5 kB for each channel of keys and of values, 200 bytes for each entry.

    Parameters
    ----------
    codebook : Codebook
    bases : sequence of Basis
        Of each unit.
    """

    def __init__(self, codebook: Codebook, bases: Sequence[Basis]) -> None:
        self._own = torch.from_numpy(codebook.own)
        size = self._own.shape[1]
        #: How far a unit's channels ask for each feature, ``(channels, features)``.
        self._asked = []
        self._overlap = torch.zeros(size, size, dtype=torch.float32, device="cpu")
        for basis, predictor, energies in zip(bases, codebook.predictors, codebook.energies, strict=True):
            of_features = basis.project(torch.from_numpy(predictor[:size]).float())
            weighted = of_features / (torch.from_numpy(energies)[:, None] + NOISE)
            self._asked.append(basis.restore(weighted).T)
            self._overlap += of_features.T @ weighted
        values, vectors = torch.linalg.eigh(self._overlap)
        self._directions = vectors[:, -_TELLING_DIRECTIONS:]
        blocks = [block.float() @ self._directions for block in self._blocks()]
        self._telling = torch.cat(blocks)
        self._sizes = torch.cat([block.square() @ values[-_TELLING_DIRECTIONS:] / 2 for block in blocks])

    def entries(self, units: Sequence[torch.Tensor]) -> npt.NDArray[np.int64]:
        """Entry of each token of a chunk, by its units' channels ``(tokens, channels)`` in the space of equal harm."""
        wanted = torch.stack([x @ asked for x, asked in zip(units, self._asked, strict=True)]).sum(dim=0)
        return torch.cat([self._best(some) for some in torch.split(wanted, _BLOCK_TOKENS)]).numpy()

    def _best(self, wanted: torch.Tensor) -> torch.Tensor:
        """Entries of some tokens, given how far they ask for each feature."""
        near = self._nearest(wanted @ self._directions)
        candidates = self._own[near].float()
        scores = (candidates @ wanted[:, :, None])[:, :, 0] - ((candidates @ self._overlap) * candidates).sum(dim=2) / 2
        # argmax finds a place even among NaN, which a chunk of huge elements makes; its tokens will be exact
        return near.gather(1, scores.argmax(dim=1, keepdim=True))[:, 0]

    def _nearest(self, wanted: torch.Tensor) -> torch.Tensor:
        """Some entries ``(tokens, at most _CANDIDATES)`` that come nearest in the telling directions."""
        scores, entries = [], []
        for first in range(0, len(self._own), _BLOCK_ENTRIES):
            block = slice(first, first + _BLOCK_ENTRIES)
            of_block = wanted @ self._telling[block].T - self._sizes[block]
            highest, at = of_block.topk(min(_CANDIDATES, of_block.shape[1]), dim=1)
            scores.append(highest)
            entries.append(at + first)
        best = torch.cat(scores, dim=1)
        return torch.cat(entries, dim=1).gather(1, best.topk(min(_CANDIDATES, best.shape[1]), dim=1).indices)

    def _blocks(self) -> list[torch.Tensor]:
        return [self._own[first : first + _BLOCK_ENTRIES] for first in range(0, len(self._own), _BLOCK_ENTRIES)]
