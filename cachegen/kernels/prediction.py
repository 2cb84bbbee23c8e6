"""Prediction of tokens' symbols from earlier tokens' of a chunk, in plain NumPy: the reference of every backend.

Integers alone, so that all backends agree, and so that what is quantized does not depend on what it is predicted from:
a prediction saves bits and changes no value.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

# Fraction bits of the weights.
WEIGHT_BITS = 14
# Symbols of a predicted token lie within, so that references never ask a decoder for more than 16 bits.
PREDICTED_LARGEST = (1 << 15) - 1
# Coefficients that an encoder predicts at one time, in 64-bit numbers.
_BLOCK_COEFFICIENTS = 256

I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Predictions:
    """Which columns of an array of symbols ``(coefficients, tokens)`` are predicted from which others.

    Parameters
    ----------
    columns : int32 array, ``(predicted tokens, 3)``
        A token's own, and those of its two references, which come before it in this order or are not predicted.
    weights : int32 array, ``(predicted tokens, 2)``
        Of the references, in units of ``2**-WEIGHT_BITS``; 0..2^16.
    ranks : int32 array, ``(predicted tokens,)``
        How many of a token's coefficients are predicted, from the first on; the others stay as they are.
    """

    columns: I32
    weights: I32
    ranks: I32


def predict(symbols: npt.NDArray[np.signedinteger], predictions: Predictions) -> I64:
    """What the symbols ``(coefficients, tokens)`` predict, ``(coefficients, predicted tokens)``.

    The nearest integer to the weighted sum of the references' symbols, a half up; 0 beyond a token's rank.
    """
    (_, first, second), (of_first, of_second) = predictions.columns.T, predictions.weights.T.astype(np.int64)
    sums = of_first * symbols[:, first] + of_second * symbols[:, second]
    inside = np.arange(len(symbols))[:, None] < predictions.ranks
    predicted: I64 = np.where(inside, (sums + (1 << (WEIGHT_BITS - 1))) >> WEIGHT_BITS, 0)
    return predicted


def take_off_predictions(symbols: npt.NDArray[np.signedinteger], predictions: Predictions) -> None:
    """Leave of an encoder's symbols ``(coefficients, tokens)`` what their predictions do not say, in place."""
    for first in range(0, len(symbols), _BLOCK_COEFFICIENTS):
        block = symbols[first : first + _BLOCK_COEFFICIENTS]
        of_block = Predictions(predictions.columns, predictions.weights, predictions.ranks - first)
        block[:, predictions.columns[:, 0]] -= predict(block, of_block).astype(block.dtype)


def add_predictions(residuals: npt.NDArray[np.signedinteger], predictions: Predictions) -> None:
    """Make symbols of what a decoder found, ``(coefficients, tokens)``, in place, token by token.

    Symbols of a predicted token are kept within ``PREDICTED_LARGEST``; an encoder's never lie beyond.
    """
    for at, column in enumerate(predictions.columns[:, 0]):
        one = slice(at, at + 1)
        this = Predictions(predictions.columns[one], predictions.weights[one], predictions.ranks[one])
        rank = int(predictions.ranks[at])
        sums = residuals[:rank, column] + predict(residuals[:rank], this)[:, 0]
        residuals[:rank, column] = np.clip(sums, -PREDICTED_LARGEST, PREDICTED_LARGEST)
