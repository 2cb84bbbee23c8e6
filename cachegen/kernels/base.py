"""What a compute backend does for the codecs, and the values that pass through it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch

from cachegen.kernels.prediction import Predictions
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


@dataclass(frozen=True)
class PlacedStream:
    """A stream of one row, and where in an array ``(coefficients, tokens)`` its symbols belong.

    ``first`` is the first of the coefficients, which are the channels of ``tables``; ``name`` is for errors. ``read``
    gives the stream: words and escapes of those that are not at work take no memory beside the section's.
    """

    read: Callable[[], CodedStreams]
    tables: FrequencyTables
    first: int
    tokens: slice
    name: str


@dataclass(frozen=True)
class Turns:
    """How the keys of each head turn: ``cos`` and ``sin (kinds, tokens, head_dim)`` at the positions of the tokens.

    ``partners (kinds, head_dim)`` are int32, ``kind_of_head (heads,)`` as well; see ``cachegen.codecs.rotary``.
    """

    cos: torch.Tensor
    sin: torch.Tensor
    partners: torch.Tensor
    kind_of_head: torch.Tensor

    def of(self, tokens: torch.Tensor) -> Turns:
        """At the positions of some of the tokens, by their indices."""
        cos, sin = (factor[:, tokens].contiguous() for factor in (self.cos, self.sin))
        return replace(self, cos=cos, sin=sin)


class Backend(Protocol):
    """The stages of the codec on one kind of processor; all backends agree bit for bit.

    Stateless, and safe to call from several threads at once. Arrays are in the host's memory, tensors on ``device``.
    """

    @property
    def device(self) -> torch.device:
        """Where tensors come from and go to."""
        ...

    def quantize_anchors(self, x: F32) -> tuple[npt.NDArray[np.uint16], Symbols]:
        """Scales and symbols of ``x (rows, groups, channels)``, every token taken as an anchor."""
        ...

    def quantize(self, x: F32, level: int) -> Quantized:
        """Symbols of ``x (rows, tokens, channels)`` at an encoding level."""
        ...

    def dequantize(self, quantized: Quantized, row_bins: F32, out: torch.Tensor) -> None:
        """Values of the symbols into ``out``, clamped to the finite range of its dtype.

        ``out`` is ``(rows, tokens, heads, head_dim)`` at any strides, but elements of a head lie next to each other.
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

    def decode_placed(self, streams: Sequence[PlacedStream], symbols: torch.Tensor, memory: int) -> None:
        """Put the symbols of streams in their places of ``symbols (coefficients, tokens)``, int16 or int32.

        It takes ``memory`` bytes at most, unless one stream takes more. FormatError names the first stream, or any of
        those at work at the same time, that is not sound.
        """
        ...

    def add_predictions(self, symbols: torch.Tensor, predictions: Predictions) -> None:
        """Make symbols of residuals ``(coefficients, tokens)`` int16 or int32, in place.

        See ``cachegen.kernels.prediction``.
        """
        ...

    def restore(
        self,
        x: torch.Tensor,
        first_head: int,
        steps: torch.Tensor,
        factors: torch.Tensor,
        means: torch.Tensor,
        turns: Turns | None,
        coded: torch.Tensor,
        out: torch.Tensor,
    ) -> None:
        """Put heads ``first_head ..``, counted layer-major, into the coded tokens of a cache of K or of V.

        Float32 arithmetic, without an order that the format fixes.

        Parameters
        ----------
        x : float32 tensor, ``(heads, tokens, head_dim)``
            In multiples of steps and factors; its elements lie next to each other, heads and tokens at any strides.
        steps : float32 tensor, ``(tokens,)``
            Of each token.
        factors : float32 tensor, ``(all heads,)``
            Of each head: 1 for keys, for values one over the layer's scale.
        means : float32 tensor, ``(all heads, head_dim)``
            Added after steps and factors.
        turns : Turns or None
            Turn what was added up; None for values.
        coded : int64 tensor, ``(tokens,)``
            Where in the cache each token goes.
        out : tensor, ``(layers, cache tokens, kv_heads, head_dim)``
            float32, float16 or bfloat16, to whose range values are clamped; a head's elements lie next to each other.
        """
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
