"""Levels of the published CacheGen code (commit 6bed34c): how many bins each layer's keys and values get.

Finest first, as everywhere here, so level 0 is what that code calls 3, and 1 is its default. Its table of levels is for
32 layers, and it refuses models that it does not name. The boundaries for other depths are our reading: the same shares
of the depth, rounded (half up), at least one layer in the first group.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

TABLE_LAYERS = 32
# First layers that a group does not reach any more, of 32; the last group goes to the end.
KEY_ENDS = (10, 20)
VALUE_ENDS = (2,)


@dataclass(frozen=True)
class PublishedLevel:
    """Bins of each group of layers, for keys and for values."""

    key_bins: tuple[int, int, int]
    value_bins: tuple[int, int]

    @property
    def table_bins(self) -> int:
        """Symbols of every table, however few its own layer has."""
        return max(self.key_bins + self.value_bins)


PUBLISHED_LEVELS = (
    PublishedLevel((32, 32, 32), (32, 32)),
    PublishedLevel((32, 16, 16), (32, 16)),
    PublishedLevel((16, 16, 12), (16, 12)),
)


def largest_values(bins: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """M of each number of bins: quantized values are -M..M, so 2M + 1 levels, always fewer than bins."""
    return bins // 2 - 1


def row_bins(level: int, num_layers: int) -> npt.NDArray[np.int64]:
    """Bins of each (layer, K/V) row, ``(2 * num_layers,)``."""
    published = PUBLISHED_LEVELS[level]
    keys = _layer_bins(published.key_bins, KEY_ENDS, num_layers)
    values = _layer_bins(published.value_bins, VALUE_ENDS, num_layers)
    return np.stack((keys, values), axis=1).ravel()


def _layer_bins(bins: tuple[int, ...], ends: tuple[int, ...], num_layers: int) -> npt.NDArray[np.int64]:
    scaled = [max(1, (2 * end * num_layers + TABLE_LAYERS) // (2 * TABLE_LAYERS)) for end in ends]
    groups = np.searchsorted(scaled, np.arange(num_layers), side="right")
    return np.array(bins, dtype=np.int64)[groups]
