"""Frequency tables of the entropy coder, one per row and channel, in compressed-row form."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from cachegen.errors import FormatError

PROB_BITS = 12
PROB_SUM = 1 << PROB_BITS
ALPHABET = 256
# Index of a value = value + VALUE_OFFSET; the last index says that the value stands in the escape list.
VALUE_OFFSET = 127
ESCAPE = 255

# Rounding of the rANS state can cost a symbol up to log2(17/16) bits of what its frequency says, and a
# renormalisation can free that much more than 16 bits; no symbol costs less than 2**-12 bits.
STATE_SLACK_BITS = 0.0875
LEAST_SYMBOL_BITS = 2.0**-12


@dataclass(frozen=True)
class FrequencyTables:
    """One frequency table per (row, channel), where a row is a (layer, K/V) pair.

    A table gives each index 0..254 a frequency; index ``ESCAPE`` gets what is left of ``PROB_SUM``, which is
    at least 1. Only the run from the first to the last index with a frequency above 0 is kept.

    Parameters
    ----------
    first : uint8 array, ``(rows, channels)``
        First index with a frequency above 0.
    count : uint8 array, ``(rows, channels)``
        Length of the run, 1..255.
    frequencies : uint16 array, ``(sum of count,)``
        All runs, row-major.

    Raises
    ------
    FormatError
        The arrays are not such tables.
    """

    first: npt.NDArray[np.uint8]
    count: npt.NDArray[np.uint8]
    frequencies: npt.NDArray[np.uint16]
    starts: npt.NDArray[np.int64] = field(init=False, repr=False, compare=False)
    least_bits: npt.NDArray[np.float64] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._check_types()
        for name in ("first", "count", "frequencies"):
            # one memory layout, so that a compiled kernel meets one array type
            object.__setattr__(self, name, np.require(getattr(self, name), requirements=["C", "A", "W"]))
        starts = np.zeros(self.count.size + 1, dtype=np.int64)
        np.cumsum(self.count.ravel(), out=starts[1:])
        object.__setattr__(self, "starts", starts)
        self._check_runs()
        largest = np.maximum.reduceat(self.frequencies, starts[:-1]).reshape(self.count.shape)
        bits = PROB_BITS - np.log2(np.maximum(largest, self.escape_frequencies()))
        least = np.maximum(bits - STATE_SLACK_BITS, LEAST_SYMBOL_BITS).sum(axis=1)
        object.__setattr__(self, "least_bits", least)

    @property
    def rows(self) -> int:
        """Number of (layer, K/V) pairs."""
        return int(self.first.shape[0])

    @property
    def channels(self) -> int:
        """Number of channels of a row."""
        return int(self.first.shape[1])

    def escape_frequencies(self) -> npt.NDArray[np.int64]:
        """Frequency of the escape index of each table, ``(rows, channels)``."""
        sums = np.add.reduceat(self.frequencies.astype(np.int64), self.starts[:-1])
        return PROB_SUM - sums.reshape(self.count.shape)

    def dense(self, row: int, channel: int) -> npt.NDArray[np.int64]:
        """Frequencies of one table by index, ``(256,)``; they sum to ``PROB_SUM``."""
        table = np.zeros(ALPHABET, dtype=np.int64)
        at = row * self.channels + channel
        first = int(self.first[row, channel])
        run = self.frequencies[self.starts[at] : self.starts[at + 1]]
        table[first : first + len(run)] = run
        table[ESCAPE] = PROB_SUM - table.sum()
        return table

    def _check_types(self) -> None:
        wanted = {"first": np.uint8, "count": np.uint8, "frequencies": np.uint16}
        for name, dtype in wanted.items():
            if getattr(self, name).dtype != dtype:
                raise FormatError(f"frequency tables: {name} is {getattr(self, name).dtype}, not {dtype.__name__}")
        if self.first.ndim != 2 or self.first.size == 0 or self.first.shape != self.count.shape:
            raise FormatError(f"frequency tables: first is {self.first.shape}, count {self.count.shape}; must be 2-D")

    def _check_runs(self) -> None:
        if int(self.count.min()) < 1:
            raise FormatError("frequency tables: an empty table")
        if int((self.first.astype(np.int64) + self.count).max()) > ESCAPE:
            raise FormatError("frequency tables: a run passes index 254")
        if self.frequencies.shape != (int(self.starts[-1]),):
            raise FormatError(
                f"frequency tables: {self.frequencies.shape} frequencies, the counts sum to {self.starts[-1]}"
            )
        ends = (self.frequencies[self.starts[:-1]], self.frequencies[self.starts[1:] - 1])
        if min(int(end.min()) for end in ends) == 0:
            raise FormatError("frequency tables: a run starts or ends with frequency 0")
        escapes = self.escape_frequencies()
        if int(escapes.min()) < 1:
            row, channel = (int(i) for i in np.unravel_index(escapes.argmin(), escapes.shape))
            raise FormatError(f"frequency tables: row {row}, channel {channel} leaves no room for the escape")
