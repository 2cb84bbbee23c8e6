"""Cumulative tables of the published code's range coder, made from the very symbols that they code."""

from __future__ import annotations

import numpy as np

from cachegen.errors import FormatError
from cachegen.kernels.range_coder import U8, Cdfs

TABLE_END = 0xFFFF


def cumulative_tables(symbols: U8, num_bins: int) -> Cdfs:
    """Tables ``(rows, channels, num_bins + 1)`` of ``symbols (rows, channels, tokens)``, all below ``num_bins``.

    Entry i is ``(0xFFFF - num_bins) * (symbols below i) / tokens + i``, rounded down: every symbol has at least one
    part in 2**16, whether it occurs or not. Counted in 64 bits, so that the number of tokens has no limit here.
    """
    rows, channels, num_tokens = symbols.shape
    cdfs = np.empty((rows, channels, num_bins + 1), dtype=np.uint16)
    first = np.arange(channels)[:, None] * num_bins
    below = np.zeros((channels, num_bins + 1), dtype=np.int64)
    for row in range(rows):
        counts = np.bincount((symbols[row] + first).ravel(), minlength=channels * num_bins)
        np.cumsum(counts.reshape(channels, num_bins), axis=1, out=below[:, 1:])
        cdfs[row] = (TABLE_END - num_bins) * below // num_tokens + np.arange(num_bins + 1)
    return cdfs


def check_cumulative_tables(cdfs: Cdfs) -> None:
    """FormatError names the first table that does not rise strictly from 0 to its end."""
    rises = (cdfs[:, :, 1:] > cdfs[:, :, :-1]).all(axis=2)
    good = rises & (cdfs[:, :, 0] == 0) & (cdfs[:, :, -1] == TABLE_END)
    if not good.all():
        row, channel = (int(i) for i in np.unravel_index(good.argmin(), good.shape))
        raise FormatError(f"table of row {row}, channel {channel} does not rise from 0 to {TABLE_END}")
