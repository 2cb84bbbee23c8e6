"""Uniform quantization for CPUs: the Numba twin of ``cachegen.kernels.uniform``, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from cachegen.kernels.jit import kernel

Array = npt.NDArray[Any]


@kernel
def quantize_kernel(y: Array, step: float, symbols: Array) -> None:
    """Symbols ``(coefficients, tokens)``."""
    for row in range(y.shape[0]):
        for token in range(y.shape[1]):
            symbols[row, token] = np.int32(np.rint(np.float64(y[row, token]) / step))
