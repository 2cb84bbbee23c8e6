"""Which tokens of a chunk are coded together: those whose symbols have one step and one set of tables."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

I64 = npt.NDArray[np.int64]
# Of steps in the grid, there are 14: a container may claim a million tokens before its streams are looked at.
Places = npt.NDArray[np.int8]


@dataclass(frozen=True)
class TokenGroup:
    """Tokens of one step and one set of tables.

    Parameters
    ----------
    place : int
        Of the step in the grid.
    table_place : int
        Of the step whose tables code them.
    tokens : slice
        In the order of :class:`TokenGroups`.
    """

    place: int
    table_place: int
    tokens: slice

    @property
    def num_tokens(self) -> int:
        """How many there are."""
        return int(self.tokens.stop - self.tokens.start)


@dataclass(frozen=True)
class TokenGroups:
    """The coded tokens of a chunk as one unit's streams have them.

    Parameters
    ----------
    places : int8 array, ``(coded tokens,)``
        Of each token's step in the grid.
    table_places : int8 array, ``(coded tokens,)``
        Of the step whose tables code it.
    """

    places: Places
    table_places: Places

    @cached_property
    def order(self) -> I64:
        """Indices of the tokens by step, the finest first, then by tables, and then as they stand in the chunk."""
        return np.lexsort((self.table_places, self.places))

    @cached_property
    def columns(self) -> I64:
        """Inverse of ``order``: where each token is."""
        return np.argsort(self.order)

    @cached_property
    def groups(self) -> list[TokenGroup]:
        """Those that occur, in order."""
        pairs = np.stack([self.places[self.order], self.table_places[self.order]], axis=1)
        starts = np.flatnonzero(np.append(True, (pairs[1:] != pairs[:-1]).any(axis=1)))
        ends = np.append(starts[1:], len(pairs))
        return [
            TokenGroup(int(place), int(table_place), slice(int(start), int(end)))
            for (place, table_place), start, end in zip(pairs[starts], starts, ends, strict=True)
        ]
