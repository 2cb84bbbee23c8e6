"""The step of each token: finer for those that later tokens will look at, coarser for the others (docs/format.md).

What noise in a token's keys and values does to a later token grows with the square of the attention that the token
gets. That differs a thousandfold between tokens, and the keys and values themselves tell a good part of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch

from cachegen.codecs.transform_tables import TransformTables
from cachegen.errors import FormatError
from cachegen.kernels.uniform import GRID_STEPS, LEVEL_PLACES, TOKEN_REACH

# Steps fall with this power of the squared attention; 0.5 would be right if the prediction were. Measured to be best.
ATTENTION_POWER = 0.4
_PLACES_PER_OCTAVE = 2

I64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class TokenSteps:
    """Which tokens of a chunk share a step.

    Parameters
    ----------
    level : int
        The chunk's.
    offsets : int64 array, ``(coded tokens,)``
        Places in the grid between a token's step and the level's, within ``+-TOKEN_REACH``.
    """

    level: int
    offsets: I64

    @cached_property
    def order(self) -> I64:
        """Indices of the tokens by step, the finest first, and within a step as they stand in the chunk."""
        return np.argsort(self.offsets, kind="stable")

    @cached_property
    def groups(self) -> list[tuple[int, slice]]:
        """Place in the grid of each step that occurs, and its tokens in ``order``."""
        found, starts = np.unique(self.offsets[self.order], return_index=True)
        ends = np.append(starts[1:], len(self.offsets))
        places = LEVEL_PLACES[self.level] + found
        return [(int(p), slice(int(a), int(b))) for p, a, b in zip(places, starts, ends, strict=True)]

    @property
    def steps(self) -> npt.NDArray[np.float64]:
        """Step of each token in ``order``."""
        return np.asarray(GRID_STEPS)[LEVEL_PLACES[self.level] + self.offsets[self.order]]


def choose_offsets(x: tuple[torch.Tensor, torch.Tensor], transform: TransformTables) -> I64:
    """Offset of each token of ``x``, keys and values ``(tokens, layers * channels)`` in the space of equal harm."""
    weights = torch.from_numpy(transform.token_weights)
    # log2 of the squared attention but for a constant, which differences to the chunk's middle token do without
    attention = (x[0] @ weights[0] + x[1] @ weights[1]).nan_to_num(0.0)
    attention -= attention.median()
    offsets = torch.round(attention * (-ATTENTION_POWER * _PLACES_PER_OCTAVE))
    result: I64 = offsets.clamp_(-TOKEN_REACH, TOKEN_REACH).long().numpy()
    return result


def write_offsets(offsets: I64) -> bytes:
    """A byte for each token."""
    return (offsets + TOKEN_REACH).astype(np.uint8).tobytes()


def read_offsets(body: memoryview, num_tokens: int) -> I64:
    """Inverse of ``write_offsets``; FormatError names the first byte that no encoder writes."""
    if len(body) != num_tokens:
        raise FormatError(f"{len(body)} bytes for {num_tokens} coded tokens")
    offsets = np.frombuffer(body, np.uint8).astype(np.int64) - TOKEN_REACH
    if int(offsets.max()) > TOKEN_REACH:
        at = int(offsets.argmax())
        raise FormatError(f"token {at} has step {int(offsets[at]) + TOKEN_REACH}, at most {2 * TOKEN_REACH}")
    return offsets
