"""What a token's identity says of its keys and values: a codebook of vectors, and what each unit makes of them.

Much of a token's keys and values, in the first layers nearly all, follows from which token it is and which one stands
before it. The profile has a vector for every entry of the model's vocabulary; a chunk names one entry for each token,
16 bits or 32, and codes what is left. The encoder is not told the tokens: it finds the entries that explain most.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from cachegen.codecs.index_type import index_type
from cachegen.codecs.rotary import LARGEST_PARAMETER
from cachegen.errors import FormatError

# More than any vocabulary has, and than any calibration makes: what a profile claims is looked at for every token.
_MOST_ENTRIES, _MOST_FEATURES = 1 << 24, 4096

I8 = npt.NDArray[np.int8]
I64 = npt.NDArray[np.int64]
Entries = npt.NDArray[np.integer[Any]]
F16 = npt.NDArray[np.float16]
F32 = npt.NDArray[np.float32]


def _in_range(energies: F32) -> bool:
    # written so that NaN fails too
    return bool(((energies >= 0) & (energies <= LARGEST_PARAMETER)).all())


@dataclass(frozen=True)
class FeatureTables:
    """Vectors of all entries on one device, int8: see ``Codebook``."""

    own: torch.Tensor
    previous: torch.Tensor

    def of(self, entries: torch.Tensor, preceding: torch.Tensor) -> torch.Tensor:
        """Features ``(tokens, own + previous)`` float32 of tokens, given their entries and :func:`preceding` ones."""
        before = self.previous[preceding.clamp_min(0)] * (preceding >= 0)[:, None]
        return torch.cat([self.own[entries], before], dim=1).float()


def preceding(entries: Entries) -> I64:
    """Entry of the token before each of a chunk's; -1 for the first, which none is known of."""
    return np.concatenate([np.full(1, -1, np.int64), entries[:-1]])


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
        if len(self.own) > _MOST_ENTRIES or not 1 <= self.own.shape[1] <= self.num_features <= _MOST_FEATURES:
            raise FormatError(
                f"transform codebook has {self.own.shape} own and {self.previous.shape} previous features"
            )
        if len(self.predictors) != len(self.energies):
            raise FormatError(f"transform codebook has {len(self.predictors)} units and {len(self.energies)} energies")
        for index, (predictor, energies) in enumerate(zip(self.predictors, self.energies, strict=True)):
            if predictor.dtype != np.float16 or predictor.ndim != 2 or len(predictor) != self.num_features:
                raise FormatError(f"transform predictor {index} is {predictor.dtype} {predictor.shape}")
            if not bool(np.isfinite(predictor).all()):
                raise FormatError(f"transform predictor {index} holds a value that is not finite")
            if energies.dtype != np.float32 or energies.ndim != 1 or not _in_range(energies):
                raise FormatError(f"transform energies {index} are {energies.dtype} {energies.shape} or out of range")

    @property
    def num_features(self) -> int:
        """Of a token: its own, and those of the one before it."""
        return int(self.own.shape[1] + self.previous.shape[1])

    def features_on(self, device: torch.device) -> FeatureTables:
        """The vectors on a device."""
        return FeatureTables(torch.from_numpy(self.own).to(device), torch.from_numpy(self.previous).to(device))

    def write_entries(self, entries: I64) -> bytes:
        """A number for each token."""
        return entries.astype(self._stored).tobytes()

    def read_entries(self, body: memoryview, num_tokens: int) -> Entries:
        """Inverse of ``write_entries``, as stored; FormatError names the first entry that there is none of."""
        if len(body) != num_tokens * self._stored.itemsize:
            raise FormatError(f"{len(body)} bytes for {num_tokens} tokens of {self._stored.itemsize} bytes")
        entries = np.frombuffer(body, self._stored)
        if int(entries.max()) >= len(self.own):
            at = int(entries.argmax())
            raise FormatError(f"token {at} has entry {int(entries[at])} of {len(self.own)}")
        return entries

    @property
    def _stored(self) -> np.dtype[np.integer[Any]]:
        return index_type(len(self.own))
