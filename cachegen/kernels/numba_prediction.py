"""Prediction of symbols for CPUs: the Numba twin of ``cachegen.kernels.prediction``, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from cachegen.kernels.jit import kernel
from cachegen.kernels.prediction import PREDICTED_LARGEST, WEIGHT_BITS, Predictions
from cachegen.kernels.workers import share_among_threads

Array = npt.NDArray[Any]
_HALF = 1 << (WEIGHT_BITS - 1)


def add_predictions(residuals: Array, predictions: Predictions) -> None:
    """See ``cachegen.kernels.prediction``."""

    def work(which: slice) -> None:
        _add_kernel(which.start, which.stop, predictions.columns, predictions.weights, predictions.ranks, residuals)

    share_among_threads(work, len(residuals))


@kernel
def weighted(first_weight: int, first: int, second_weight: int, second: int) -> np.signedinteger:
    """What two references' symbols predict, see ``cachegen.kernels.prediction.predict``."""
    sums = np.int64(first_weight) * np.int64(first) + np.int64(second_weight) * np.int64(second)
    return (sums + _HALF) >> WEIGHT_BITS


@kernel
def _add_kernel(first: int, end: int, columns: Array, weights: Array, ranks: Array, residuals: Array) -> None:
    """Coefficients ``first..end-1``: a row of symbols lies together, and each row is by itself."""
    for row in range(first, end):
        of_row = residuals[row]
        for at in range(len(ranks)):
            if row < ranks[at]:
                first_symbol, second_symbol = of_row[columns[at, 1]], of_row[columns[at, 2]]
                predicted = weighted(weights[at, 0], first_symbol, weights[at, 1], second_symbol)
                value = of_row[columns[at, 0]] + predicted
                of_row[columns[at, 0]] = min(max(value, -PREDICTED_LARGEST), PREDICTED_LARGEST)
