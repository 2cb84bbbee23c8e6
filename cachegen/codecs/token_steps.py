"""The step of each token: finer the nearer it is to the end of its context (docs/format.md).

What noise in a token's keys and values does to a later token grows with the square of the attention that it gets, and
what is asked and answered behind a context looks at its end most. Weights of the tokens themselves, learned from the
attention they get in calibration texts, were tried and gained nothing beyond that, but for sinks, which the codec gives
the finest of its steps (``sink_tokens.py``).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cachegen.errors import FormatError
from cachegen.kernels.uniform import TOKEN_REACH

# Steps grow with this power of the distance to the context's end; measured to be about best.
DISTANCE_POWER = 0.4
# Tokens so far from the end have their level's own step: in the middle of a context of some thousand tokens.
LEVEL_DISTANCE = 768
_PLACES_PER_OCTAVE = 2

I64 = npt.NDArray[np.int64]


def choose_offsets(num_tokens: int, tokens_behind: int | None) -> I64:
    """Offset of each token of a chunk that so many tokens of its context follow; all 0 where that is not known."""
    if tokens_behind is None:
        return np.zeros(num_tokens, dtype=np.int64)
    distances = tokens_behind + np.arange(num_tokens, 0, -1)
    places = _PLACES_PER_OCTAVE * DISTANCE_POWER * np.log2(distances / LEVEL_DISTANCE)
    return np.clip(np.rint(places), -TOKEN_REACH, TOKEN_REACH).astype(np.int64)


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
