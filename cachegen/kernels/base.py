"""What a compute backend does for the codecs, and the values that pass through it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch

from cachegen.kernels.tables import FrequencyTables

F32 = npt.NDArray[np.float32]
# Symbols stand in coding order: (rows, channels, tokens), where a row is a (layer, K/V) pair, layer-major.
Symbols = npt.NDArray[np.int32]

MAX_LANES = 32
# A lane costs 4 bytes of state, of which 2 are lost: at 512 symbols or more per lane that is below 1 %.
LANE_SYMBOLS = 512
STATE_LOW = 1 << 16


def num_lanes(num_symbols: int) -> int:
    """Lanes of a stream: the largest power of two that leaves each lane 512 symbols, in 1..32."""
    lanes = max(1, min(MAX_LANES, num_symbols // LANE_SYMBOLS))
    return 1 << (lanes.bit_length() - 1)


@dataclass(frozen=True)
class Quantized:
    """A chunk as symbols: 8-bit anchors with a scale each, deltas with a sigma for each row.

    ``scale_bits (rows, groups)`` are bfloat16 as uint16, ``anchors (rows, channels, groups)``,
    ``sigmas (rows,)``, ``deltas (rows, channels, deltas)``.
    """

    scale_bits: npt.NDArray[np.uint16]
    anchors: Symbols
    sigmas: F32
    deltas: Symbols


@dataclass(frozen=True)
class CodedStreams:
    """One rANS stream for each row, as docs/format.md defines it.

    ``states (rows, lanes)`` are those that the decoder starts with. ``words`` and ``escapes`` are those of
    all rows in order, ``num_words (rows,)`` and ``num_escapes (rows,)`` of them each.
    """

    states: npt.NDArray[np.uint32]
    num_words: npt.NDArray[np.int64]
    words: npt.NDArray[np.uint16]
    num_escapes: npt.NDArray[np.int64]
    escapes: npt.NDArray[np.int32]

    @cached_property
    def word_starts(self) -> npt.NDArray[np.int64]:
        """Where each row's words begin, and where the last row's end."""
        return np.append(0, np.cumsum(self.num_words))

    @cached_property
    def escape_starts(self) -> npt.NDArray[np.int64]:
        """Where each row's escapes begin, and where the last row's end."""
        return np.append(0, np.cumsum(self.num_escapes))


class Backend(Protocol):
    """The stages of the codec on one kind of processor; all backends agree bit for bit.

    Stateless, and safe to call from several threads at once.
    """

    def quantize_anchors(self, x: F32) -> tuple[npt.NDArray[np.uint16], Symbols]:
        """Scales and symbols of ``x (rows, groups, channels)``, every token taken as an anchor."""
        ...

    def quantize(self, x: F32, level: int) -> Quantized:
        """Symbols of ``x (rows, tokens, channels)`` at an encoding level."""
        ...

    def dequantize(self, quantized: Quantized, row_bins: F32, out: torch.Tensor) -> None:
        """Values of the symbols into ``out (rows, tokens, channels)``, clamped to the finite range of its dtype.

        ``row_bins (rows,)`` are those that the deltas were quantized with.
        """
        ...

    def quantize_uniform(self, y: F32, step: float) -> npt.NDArray[np.int32]:
        """Symbols of coefficients ``y (coefficients, tokens)``, see ``cachegen.kernels.uniform``."""
        ...

    def count(self, symbols: Symbols, counts: npt.NDArray[np.uint32]) -> None:
        """Add to ``counts (rows, channels, 256)`` by alphabet index; values without one count as escapes.

        Who calls sees to it that no count gets beyond 2^32 - 1.
        """
        ...

    def encode_streams(self, symbols: Symbols, tables: FrequencyTables) -> CodedStreams:
        """Entropy-code each row."""
        ...

    def decode_streams(self, coded: CodedStreams, num_tokens: int, tables: FrequencyTables, rows: slice) -> Symbols:
        """Symbols of some of the rows; FormatError names the first whose stream is not sound."""
        ...

    def each(self, work: Callable[[slice], None], count: int, item_bytes: int, memory: int) -> None:
        """Have ``work`` done on slices that cover ``0..count-1``, in memory that stays within bounds.

        Parameters
        ----------
        item_bytes : int
            What work on one item takes; it is done even if that is more than ``memory``.
        memory : int
            Bytes that all work under way at one time may take.
        """
        ...
