"""Frequency tables as GPU kernels read them: in global memory, a few cache lines each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from cachegen.kernels.tables import PROB_SUM, FrequencyTables

I64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class DeviceTables:
    """The rows of one or more ``FrequencyTables``, one after the other, on a device.

    Parameters
    ----------
    entries : int64 tensor, ``(tables,)``
        For each table where its starts begin, shifted by 16, the length of its run shifted by 8, its first index.
    cumulative : uint16 tensor, flat
        For each table the starts of its run's indices, of the escape, and the sum of all.
    channels, first_table, search_steps : int64 arrays, ``(rows,)``
        Of each row: its tables, the first of them, and the halvings that find an index in the longest.
    """

    entries: torch.Tensor
    cumulative: torch.Tensor
    channels: I64
    first_table: I64
    search_steps: I64

    @property
    def device(self) -> torch.device:
        """Where the tables are."""
        return self.entries.device


def upload_tables(tables: Sequence[FrequencyTables], device: torch.device) -> DeviceTables:
    """Tables of all rows of all arguments, in order."""
    counts = np.concatenate([part.count.ravel() for part in tables]).astype(np.int64)
    firsts = np.concatenate([part.first.ravel() for part in tables]).astype(np.int64)
    frequencies = np.concatenate([part.frequencies for part in tables]).astype(np.int64)
    begins = _exclusive_sums(counts + 2)
    entries = begins[:-1] << 16 | counts << 8 | firsts
    channels = np.repeat([part.channels for part in tables], [part.rows for part in tables]).astype(np.int64)
    first_table = _exclusive_sums(channels)[:-1]
    longest = np.maximum.reduceat(counts, first_table)
    return DeviceTables(
        torch.from_numpy(entries).to(device),
        torch.from_numpy(_cumulative(counts, frequencies, begins)).to(device),
        channels,
        first_table,
        np.array([int(count).bit_length() for count in longest], dtype=np.int64),
    )


def _cumulative(counts: I64, frequencies: I64, begins: I64) -> npt.NDArray[np.uint16]:
    """Starts within each table, its escape's included, and then the sum of all its frequencies."""
    sums = _exclusive_sums(frequencies)
    runs = _exclusive_sums(counts)
    ends = begins[1:] - 1
    is_start = np.ones(int(begins[-1]), dtype=bool)
    is_start[ends] = False
    result = np.full(int(begins[-1]), PROB_SUM, dtype=np.uint16)
    # the start of an index is the sum up to it less the sum up to its table; a table has one more start than counts
    tables = np.repeat(np.arange(len(counts)), counts + 1)
    result[is_start] = sums[np.arange(len(tables)) - tables] - sums[runs[tables]]
    return result


def _exclusive_sums(values: I64) -> I64:
    """Sum of all values before each, and of all: one longer than the values."""
    return np.concatenate(([0], np.cumsum(values)))
