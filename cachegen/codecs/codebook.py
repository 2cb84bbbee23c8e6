"""What a token's identity says of its keys and values: a codebook of vectors, and what each unit makes of them.

Much of a token's keys and values, in the first layers nearly all, follows from which token it is and which one stands
before it. The profile has a vector for every entry of the model's vocabulary; a chunk names one entry for each token,
16 bits, and codes what is left. The encoder is not told the tokens: it takes the entry that leaves the least to code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from cachegen.errors import FormatError

# Entries compared with a chunk's tokens at one time: 16 MB for chunks of 512 tokens.
_BLOCK_ENTRIES = 8192
# Directions in which all entries are compared, and entries of each token that are then compared in all: what a full
# search finds, in a tenth of the time.
_TELLING_DIRECTIONS, _CANDIDATES = 48, 8
# Variance, in units of the space of equal harm, below which less of it saves no bits; about that of a common step.
NOISE = 0.1
_LARGEST_HALF = float(np.finfo(np.float16).max)
_MOST_ENTRIES_OF_16_BITS = 1 << 16

I8 = npt.NDArray[np.int8]
I64 = npt.NDArray[np.int64]
F16 = npt.NDArray[np.float16]
F32 = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Codebook:
    """Vectors of all entries, and what they predict.

    Parameters
    ----------
    own : int8 array, ``(entries, own features)``
        Of a token.
    previous : int8 array, ``(entries, previous features)``
        Of the token before it.
    predictors : tuple of float16 arrays, ``(own + previous features, channels of the unit)``
        For each unit; a token's prediction is its row of features times this.
    energies : tuple of float32 arrays, ``(rank at the finest step,)``
        Variance of each of a unit's coefficients without its prediction.

    Raises
    ------
    FormatError
        The arrays do not fit together, or hold values that no calibration makes.
    """

    own: I8
    previous: I8
    predictors: tuple[F16, ...]
    energies: tuple[F32, ...]

    def __post_init__(self) -> None:
        for name, table in (("own", self.own), ("previous", self.previous)):
            if table.dtype != np.int8 or table.ndim != 2 or len(table) == 0 or len(table) != len(self.own):
                raise FormatError(f"transform codebook.{name} is {table.dtype} {table.shape}")
        if len(self.predictors) != len(self.energies):
            raise FormatError(f"transform codebook has {len(self.predictors)} units and {len(self.energies)} energies")
        for index, (predictor, energies) in enumerate(zip(self.predictors, self.energies, strict=True)):
            if predictor.dtype != np.float16 or predictor.ndim != 2 or len(predictor) != self.num_features:
                raise FormatError(f"transform predictor {index} is {predictor.dtype} {predictor.shape}")
            # written so that NaN fails too
            if not bool((np.abs(predictor) <= _LARGEST_HALF).all()):
                raise FormatError(f"transform predictor {index} holds a value that is not finite")
            if energies.dtype != np.float32 or energies.ndim != 1 or not bool((energies >= 0).all()):
                raise FormatError(f"transform energies {index} are {energies.dtype} {energies.shape} or negative")

    @property
    def num_features(self) -> int:
        """Of a token: its own, and those of the one before it."""
        return int(self.own.shape[1] + self.previous.shape[1])

    def features(self, entries: I64) -> I8:
        """Features ``(tokens, num_features)`` of consecutive tokens; none stands before the first."""
        before = np.zeros((len(entries), self.previous.shape[1]), dtype=np.int8)
        before[1:] = self.previous[entries[:-1]]
        return np.concatenate([self.own[entries], before], axis=1)

    def choose(self, coefficients: Sequence[torch.Tensor], projected: Sequence[torch.Tensor]) -> I64:
        """Entry of each token of a chunk: the one that leaves the least to code, in the measure of its energies.

        Parameters
        ----------
        coefficients : sequence of float32 tensors, ``(rank, tokens)``
            Of each unit, before anything is taken off.
        projected : sequence of float32 tensors, ``(rank, num_features)``
            The coefficients of each feature's prediction.
        """
        size = self.own.shape[1]
        wanted = torch.zeros(coefficients[0].shape[1], size)
        overlap = torch.zeros(size, size)
        for y, of_features, energies in zip(coefficients, projected, self.energies, strict=True):
            own = of_features[:, :size]
            weighted = own / (torch.from_numpy(energies[: len(own), None]) + NOISE)
            wanted += y.T @ weighted
            overlap += own.T @ weighted
        values, vectors = torch.linalg.eigh(overlap)
        telling = vectors[:, -_TELLING_DIRECTIONS:]
        near = self._nearest(wanted @ telling, telling, values[-_TELLING_DIRECTIONS:])
        candidates = torch.from_numpy(self.own)[near].float()
        scores = (candidates @ wanted[:, :, None])[:, :, 0] - ((candidates @ overlap) * candidates).sum(dim=2) / 2
        # argmax finds a place even among NaN, which a chunk of huge elements makes; its tokens will be exact
        best = scores.argmax(dim=1, keepdim=True)
        return near.gather(1, best)[:, 0].numpy()

    def _nearest(self, wanted: torch.Tensor, directions: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """Some entries ``(tokens, at most _CANDIDATES)`` that come nearest in a few directions."""
        scores, entries = torch.empty(len(wanted), 0), torch.empty((len(wanted), 0), dtype=torch.int64)
        for first in range(0, len(self.own), _BLOCK_ENTRIES):
            vectors = torch.from_numpy(self.own[first : first + _BLOCK_ENTRIES]).float() @ directions
            of_block = wanted @ vectors.T - vectors.square() @ weights / 2
            highest, at = of_block.topk(min(_CANDIDATES, len(vectors)), dim=1)
            scores, entries = torch.cat([scores, highest], dim=1), torch.cat([entries, at + first], dim=1)
        return entries.gather(1, scores.topk(min(_CANDIDATES, scores.shape[1]), dim=1).indices)

    def write_entries(self, entries: I64) -> bytes:
        """A number for each token."""
        return entries.astype(self._stored).tobytes()

    def read_entries(self, body: memoryview, num_tokens: int) -> I64:
        """Inverse of ``write_entries``; FormatError names the first entry that there is none of."""
        if len(body) != num_tokens * self._stored.itemsize:
            raise FormatError(f"{len(body)} bytes for {num_tokens} tokens of {self._stored.itemsize} bytes")
        entries = np.frombuffer(body, self._stored).astype(np.int64)
        if int(entries.max()) >= len(self.own):
            at = int(entries.argmax())
            raise FormatError(f"token {at} has entry {int(entries[at])} of {len(self.own)}")
        return entries

    @property
    def _stored(self) -> np.dtype[np.generic]:
        return np.dtype("<u2" if len(self.own) <= _MOST_ENTRIES_OF_16_BITS else "<u4")
