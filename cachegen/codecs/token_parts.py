"""Coded tokens that are coded as if a chunk had no others: strong sinks, and all that are none (docs/format.md).

A strong sink has many more coefficients than the other tokens of a coarse level. In arrays of their own, those few take
no room and no time for all.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from cachegen.codecs.token_groups import I64, Places, TokenGroups
from cachegen.codecs.token_references import TokenReferences
from cachegen.kernels.prediction import Predictions
from cachegen.kernels.uniform import LEVEL_PLACES, TOKEN_REACH


@dataclass(frozen=True)
class TokenPart:
    """Some of a chunk's coded tokens, in order.

    Parameters
    ----------
    tokens : int64 array, ``(tokens,)``
        Which of the coded ones they are.
    places : int8 array, ``(tokens,)``
        Of their steps in the grid.
    references : TokenReferences
        Of these tokens among themselves.
    """

    tokens: I64
    places: Places
    references: TokenReferences

    @cached_property
    def groups(self) -> list[TokenGroups]:
        """How each unit's tokens are coded."""
        return self.references.groups(self.places)

    def predictions(self, unit: int, columns: I64, ranks: npt.NDArray[np.int32]) -> Predictions:
        """What predicts a unit's symbols, of tokens in these columns; ``ranks`` are the unit's at all steps."""
        return self.references.predictions(unit, self.places, columns, ranks[self.places])


def parts_of(level: int, places: Places) -> list[I64]:
    """Which of some tokens, by the places of their steps, make each part of a chunk; none is empty.

    Those whose step is beyond the reach of an offset come first.
    """
    beyond = places < LEVEL_PLACES[level] - TOKEN_REACH
    return [part for part in (np.flatnonzero(beyond), np.flatnonzero(~beyond)) if len(part)]
