"""What a chunk's tokens are predicted from: earlier tokens of the chunk that are like them (docs/format.md).

A word that occurs again has much the same keys and values, beyond what its identity alone says: they are those of this
text. So a token names two earlier ones, and for each unit how much of their symbols it takes, and which tables code
what is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from cachegen.codecs.index_type import index_type
from cachegen.codecs.token_groups import Places, TokenGroups
from cachegen.errors import FormatError
from cachegen.kernels.prediction import WEIGHT_BITS, Predictions

# Of the first and of the second reference, in 64ths, for each mode.
MODES = ((0, 0), (26, 0), (38, 0), (51, 0), (64, 0), (19, 19), (26, 26), (32, 32), (38, 38))
_MODE_BITS = 6
# Places by which the tables of a token lie before or behind its step, by the number that a chunk has for them.
TABLE_OFFSETS = (-1, 0, 1)
# A reference's step over the token's own, by the places between them from -4 to 4.
_RATIO_BITS = WEIGHT_BITS - _MODE_BITS
_MOST_PLACES = 4
_RATIOS = np.rint(2.0 ** (np.arange(-_MOST_PLACES, _MOST_PLACES + 1) / 2 + _RATIO_BITS)).astype(np.int64)
MODE_WEIGHTS = np.array(MODES, dtype=np.int64)

I64 = npt.NDArray[np.int64]
Integers = npt.NDArray[np.integer[Any]]


@dataclass(frozen=True)
class TokenReferences:
    """References of a chunk's coded tokens.

    Parameters
    ----------
    first, second : integer array, ``(coded tokens,)``
        Which of the coded tokens a token refers to; itself where it refers to none.
    modes : integer array, ``(units, coded tokens)``
        Places in ``MODES``.
    table_offsets : integer array, ``(units, coded tokens)``
        Of ``TABLE_OFFSETS``.
    """

    first: Integers
    second: Integers
    modes: Integers
    table_offsets: Integers

    def of(self, tokens: I64) -> TokenReferences:
        """Those of some of the tokens, in rising order, numbered anew.

        Raises
        ------
        FormatError
            One of them refers to a token that is not among them.
        """
        if len(tokens) == len(self.first):
            return self
        # of 32 bits: a container may claim a million tokens before its streams are looked at
        numbers = np.full(len(self.first), -1, dtype=np.int32)
        numbers[tokens] = own = np.arange(len(tokens), dtype=np.int32)
        modes = self.modes[:, tokens]
        renumbered: list[Integers] = []
        for reference, takes in zip((self.first, self.second), MODE_WEIGHTS.T > 0, strict=True):
            found = numbers[reference[tokens]]
            outside = np.zeros(len(self.first), dtype=bool)
            outside[tokens] = (found < 0) & takes[modes].any(axis=0)
            _refuse_first(outside, "refers to one that is not coded with it")
            # what is given no weight may be any token
            renumbered.append(np.where(found < 0, own, found))
        first, second = renumbered
        return TokenReferences(first, second, modes, self.table_offsets[:, tokens])

    def groups(self, places: Places) -> list[TokenGroups]:
        """How each unit's tokens are coded, given the places of their steps in the grid."""
        return [TokenGroups(places, places + offsets.astype(np.int8)) for offsets in self.table_offsets]

    def predictions(self, unit: int, places: Places, columns: I64, ranks: npt.NDArray[np.int32]) -> Predictions:
        """What predicts a unit's symbols, of tokens that stand in these columns and have these ranks."""
        tokens = np.flatnonzero(self.modes[unit])
        involved = np.stack([tokens, self.first[tokens], self.second[tokens]], axis=1)
        weights = step_ratios(places, involved) * MODE_WEIGHTS[self.modes[unit, tokens]]
        return Predictions(columns[involved].astype(np.int32), weights.astype(np.int32), ranks[tokens])


def no_references(units: int, num_tokens: int) -> TokenReferences:
    """Where no token refers to another."""
    own, zeros = np.arange(num_tokens), np.zeros((units, num_tokens), dtype=np.int8)
    return TokenReferences(own, own.copy(), zeros, zeros.copy())


def join_references(parts: Sequence[tuple[I64, TokenReferences]]) -> TokenReferences:
    """Inverse of :meth:`TokenReferences.of` for tokens, each in one of the parts."""
    units, count = len(parts[0][1].modes), sum(len(tokens) for tokens, _ in parts)
    joined = no_references(units, count)
    for tokens, references in parts:
        joined.first[tokens], joined.second[tokens] = tokens[references.first], tokens[references.second]
        joined.modes[:, tokens], joined.table_offsets[:, tokens] = references.modes, references.table_offsets
    return joined


def step_ratios(places: Places, involved: I64) -> I64:
    """Steps of both references over a token's own, ``(tokens, 2)``, in 256ths; ``involved`` are it and them."""
    own, *references = places[involved].T
    ratios: I64 = _RATIOS[np.stack(references, axis=1) - own[:, None] + _MOST_PLACES]
    return ratios


def write_references(references: TokenReferences, num_tokens: int) -> bytes:
    """The section, of a chunk of ``num_tokens``."""
    number = index_type(num_tokens)
    choices = len(TABLE_OFFSETS) * references.modes.astype(np.int64) + references.table_offsets - TABLE_OFFSETS[0]
    pair = (references.first.astype(number), references.second.astype(number))
    return b"".join(part.tobytes() for part in (*pair, choices.astype(np.uint8)))


def read_references(
    body: memoryview, num_tokens: int, units: int, places: Places, table_places: int
) -> TokenReferences:
    """Inverse of ``write_references``.

    Parameters
    ----------
    num_tokens : int
        Of the chunk.
    units : int
    places : int8 array, ``(coded tokens,)``
        Of each token's step in the grid.
    table_places : int
        Size of the grid.

    Raises
    ------
    FormatError
        It is of another length, or names the first token with a reference that is not before it, a mode that there is
        not, or tables outside the grid.
    """
    count, number = len(places), index_type(num_tokens)
    expected = count * (2 * number.itemsize + units)
    if len(body) != expected:
        raise FormatError(f"{len(body)} bytes for {count} coded tokens and {units} units, must be {expected}")
    first, second = np.frombuffer(body, number, 2 * count).reshape(2, count)
    choices = np.frombuffer(body, np.uint8, offset=2 * count * number.itemsize).reshape(units, count)
    modes, offset_numbers = np.divmod(choices, np.uint8(len(TABLE_OFFSETS)))
    offsets = offset_numbers.astype(np.int8) + np.int8(TABLE_OFFSETS[0])
    _refuse_first(modes >= len(MODES), "is predicted in a way that there is not")
    _refuse_first((places + offsets < 0) | (places + offsets >= table_places), "has tables outside the grid")
    own = np.arange(count, dtype=np.uint32)
    for reference, takes in zip((first, second), MODE_WEIGHTS.T > 0, strict=True):
        used = takes[modes].any(axis=0)
        _refuse_first((reference > own) | (used & (reference == own)), "refers to one that is not before it")
    return TokenReferences(first, second, modes, offsets)


def _refuse_first(wrong: npt.NDArray[np.bool_], what: str) -> None:
    """FormatError for the first coded token, the last axis, of which this is true."""
    if bool(wrong.any()):
        raise FormatError(f"coded token {int(wrong.any(axis=tuple(range(wrong.ndim - 1))).argmax())} {what}")
