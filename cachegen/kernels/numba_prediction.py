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
def _add_kernel(first: int, end: int, columns: Array, weights: Array, ranks: Array, residuals: Array) -> None:
    """Coefficients ``first..end-1``: a row of symbols lies together, and each row is by itself."""
    for row in range(first, end):
        of_row = residuals[row]
        for at in range(len(ranks)):
            if row < ranks[at]:
                sums = np.int64(weights[at, 0]) * of_row[columns[at, 1]]
                sums += np.int64(weights[at, 1]) * of_row[columns[at, 2]]
                value = of_row[columns[at, 0]] + ((sums + _HALF) >> WEIGHT_BITS)
                of_row[columns[at, 0]] = min(max(value, -PREDICTED_LARGEST), PREDICTED_LARGEST)
