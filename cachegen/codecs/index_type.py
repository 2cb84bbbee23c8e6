"""How wide the numbers are by which a section names one of many."""

from __future__ import annotations

from typing import Any

import numpy as np

_MOST_OF_16_BITS = 1 << 16


def index_type(count: int) -> np.dtype[np.integer[Any]]:
    """Of numbers below ``count``: 16 bits as long as that is enough, then 32."""
    return np.dtype("<u2" if count <= _MOST_OF_16_BITS else "<u4")
