"""Mid-tread uniform quantization of the ``transform`` codec, in plain NumPy: the reference of every backend.

Float64 arithmetic on float32 inputs, rounding half to even, so that backends agree bit for bit. Neither a dead zone nor
values nearer to zero than their symbols pay: they lose energy, which harms attention more than noise of the same size.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

F32 = npt.NDArray[np.float32]

# Half octaves, in units of the noise that the calibration calls equally harmful everywhere.
GRID_STEPS = tuple(0.05 * 2 ** (i / 2) for i in range(14))
# Place in the grid of each level's step, the finest level first: 0.1, 0.2, 0.4, 0.57, 0.8, 1.1, 1.6, 2.3.
LEVEL_PLACES = (2, 4, 6, 7, 8, 9, 10, 11)
# A token's own step may lie so many places before or behind its level's.
TOKEN_REACH = 2
# A coefficient beyond it makes its token exact; so the product with a step is exact in float64.
SYMBOL_LARGEST = 1 << 20


def quantize(y: F32, step: float) -> npt.NDArray[np.int32]:
    """Nearest multiple of the step for each coefficient; ``|y / step|`` is at most ``SYMBOL_LARGEST``."""
    return np.rint(y.astype(np.float64) / step).astype(np.int32)
