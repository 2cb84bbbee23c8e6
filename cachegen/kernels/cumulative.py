"""Cumulative tables of the published code's range coder, made from the very symbols that they code."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cachegen.errors import FormatError
from cachegen.kernels.range_coder import U8, Cdfs

TABLE_END = 0xFFFF


def cumulative_tables(symbols: U8, num_bins: int) -> Cdfs:
    """Tables ``(channels, num_bins + 1)`` of ``symbols (channels, tokens)``, all below ``num_bins``.

    Entry i is ``(0xFFFF - num_bins) * (symbols below i) / tokens + i``, rounded down: every symbol has at least one
    part in 2**16, whether it occurs or not. Counted in 64 bits, so that the number of tokens has no limit here.
    """
    channels, num_tokens = symbols.shape
    first = np.arange(channels)[:, None] * num_bins
    counts = np.bincount((symbols + first).ravel(), minlength=channels * num_bins)
    below = np.zeros((channels, num_bins + 1), dtype=np.int64)
    np.cumsum(counts.reshape(channels, num_bins), axis=1, out=below[:, 1:])
    cdfs: Cdfs = ((TABLE_END - num_bins) * below // num_tokens + np.arange(num_bins + 1)).astype(np.uint16)
    return cdfs


def check_cumulative_tables(cdfs: npt.NDArray[np.uint16]) -> None:
    """FormatError names the first of ``(rows, channels, entries)`` tables that does not rise from 0 to its end."""
    rises = (cdfs[:, :, 1:] > cdfs[:, :, :-1]).all(axis=2)
    good = rises & (cdfs[:, :, 0] == 0) & (cdfs[:, :, -1] == TABLE_END)
    if not good.all():
        row, channel = (int(i) for i in np.unravel_index(good.argmin(), good.shape))
        raise FormatError(f"table of row {row}, channel {channel} does not rise from 0 to {TABLE_END}")
