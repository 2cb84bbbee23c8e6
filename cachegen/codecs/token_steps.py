"""The step of each token: finer the nearer it is to the end of its context (docs/format.md).

What noise in a token's keys and values does to a later token grows with the square of the attention that it gets, and
what is asked and answered behind a context looks at its end most. Weights of the tokens themselves, learned from the
attention they get in calibration texts, were tried and gained nothing beyond that, but for sinks (``sink_tokens.py``).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from cachegen.codecs.sink_tokens import find_sinks, find_strong_sinks
from cachegen.codecs.token_groups import Places
from cachegen.errors import FormatError
from cachegen.kernels.uniform import LEVEL_PLACES, TOKEN_REACH

# Steps grow with this power of the distance to the context's end; measured to be about best.
DISTANCE_POWER = 0.4
# Tokens so far from the end have their level's own step: in the middle of a context of some thousand tokens.
LEVEL_DISTANCE = 768
_PLACES_PER_OCTAVE = 2
# Of strong sinks, beyond the reach of others: an eighth of the level's step, or the finest that the grid has. Finer
# gained nothing, and takes longer to decode: there are more coefficients.
STRONG_OFFSET = -6
_STRONG_BYTE = 2 * TOKEN_REACH + 1

I64 = npt.NDArray[np.int64]
Offsets = npt.NDArray[np.int8]


def choose_offsets(num_tokens: int, tokens_behind: int | None) -> I64:
    """Offset of each token of a chunk that so many tokens of its context follow; all 0 where that is not known."""
    if tokens_behind is None:
        return np.zeros(num_tokens, dtype=np.int64)
    distances = tokens_behind + np.arange(num_tokens, 0, -1)
    places = _PLACES_PER_OCTAVE * DISTANCE_POWER * np.log2(distances / LEVEL_DISTANCE)
    return np.clip(np.rint(places), -TOKEN_REACH, TOKEN_REACH).astype(np.int64)


def give_sinks_their_own(offsets: I64, values: torch.Tensor) -> None:
    """Make the steps of sinks finer, in place.

    Parameters
    ----------
    offsets : int64 array, ``(tokens,)``
    values : float tensor, ``(layers, tokens, kv_heads, head_dim)``
        Of the chunk.
    """
    offsets[find_sinks(values).cpu().numpy()] = -TOKEN_REACH
    offsets[find_strong_sinks(values).cpu().numpy()] = STRONG_OFFSET


def places_of(level: int, offsets: I64 | Offsets) -> Places:
    """Places in the grid of the steps of tokens with these offsets."""
    return np.maximum(LEVEL_PLACES[level] + offsets, 0).astype(np.int8)


def too_fine_for_steps(level: int, offsets: I64) -> npt.NDArray[np.bool_]:
    """Which tokens ask for finer steps than the grid has at a level, and are better stored as they are."""
    too_fine: npt.NDArray[np.bool_] = (offsets == STRONG_OFFSET) & (LEVEL_PLACES[level] <= TOKEN_REACH)
    return too_fine


def write_offsets(offsets: I64) -> bytes:
    """A byte for each token."""
    return np.where(offsets == STRONG_OFFSET, _STRONG_BYTE, offsets + TOKEN_REACH).astype(np.uint8).tobytes()


def read_offsets(body: memoryview, num_tokens: int) -> Offsets:
    """Inverse of ``write_offsets``; FormatError names the first byte that no encoder writes."""
    if len(body) != num_tokens:
        raise FormatError(f"{len(body)} bytes for {num_tokens} coded tokens")
    steps = np.frombuffer(body, np.uint8)
    if int(steps.max()) > _STRONG_BYTE:
        at = int(steps.argmax())
        raise FormatError(f"token {at} has step {int(steps[at])}, at most {_STRONG_BYTE}")
    offsets = steps.astype(np.int8) - np.int8(TOKEN_REACH)
    offsets[steps == _STRONG_BYTE] = STRONG_OFFSET
    return offsets
