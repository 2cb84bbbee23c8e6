"""The paper's codec with some of its ideas left out, for the ablation alone: no container names these.

With all ideas in, the sections are those of ``cachegen``, byte for byte.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch

from cachegen.codecs.cachegen import (
    SECTION_ANCHOR_SCALES,
    SECTION_ANCHOR_STREAMS,
    SECTION_DELTA_SIGMAS,
    SECTION_DELTA_STREAMS,
    as_rows,
)
from cachegen.codecs.frequencies import Counts, build_tables
from cachegen.codecs.streams import read_streams, write_streams
from cachegen.kernels import anchor, get_backend
from cachegen.kernels.base import F32, Quantized
from cachegen.kernels.tables import FrequencyTables
from cachegen.kv import ChunkLayout

# One bin for all layers: the mean of the thirds' bins, so that a level of either kind is about as coarse.
FLAT_BINS = (1.0, 1.0, 1.0)


@dataclass(frozen=True)
class PaperSwitches:
    """Which of the paper's ideas a variant has (CacheGen, section 5.2).

    Parameters
    ----------
    deltas : bool
        Tokens are coded as differences to the anchor of their group, which is quantized in 8 bits. Without: no token is
        an anchor, and each one's own values are quantized in bins of sigma times the layer's bin times the level's
        multiplier. Sigma then is the root mean square of all values of the layer's K or V in the chunk, about zero as
        that of deltas is.
    layer_bins : bool
        Bins widen over the thirds of the layers. Without: one bin, 1 sigma times the level's multiplier, for all.
    channel_tables : bool
        A frequency table for each (layer, K/V, channel). Without: one for all anchors, and one for all other symbols.
    """

    deltas: bool
    layer_bins: bool
    channel_tables: bool

    def __str__(self) -> str:
        parts = (
            "deltas" if self.deltas else "values",
            "bins by layer" if self.layer_bins else "one bin",
            "tables by channel" if self.channel_tables else "one table",
        )
        return ", ".join(parts)


@dataclass(frozen=True)
class VariantTables:
    """Tables of a variant: of its anchors, where it has any, and of its other symbols at one level."""

    anchors: FrequencyTables
    others: FrequencyTables


class PaperVariant:
    """A variant of the ``cachegen`` codec.

    Parameters
    ----------
    switches : PaperSwitches
    """

    def __init__(self, switches: PaperSwitches) -> None:
        self.switches = switches
        self._backend = get_backend("numba")
        self._third_bins = anchor.THIRD_BINS if switches.layer_bins else FLAT_BINS

    def quantize(self, x: F32, level: int) -> Quantized:
        """Symbols of ``x (rows, tokens, channels)``; without deltas, those of all tokens stand in their place."""
        if self.switches.deltas:
            scale_bits, anchors = self._backend.quantize_anchors(x[:, :: anchor.GROUP_TOKENS])
            others = anchor.deltas(x, anchor.anchor_values(anchors.transpose(0, 2, 1), scale_bits))
        else:
            rows, _, channels = x.shape
            scale_bits, anchors = np.empty((rows, 0), np.uint16), np.empty((rows, channels, 0), np.int32)
            others = x.astype(np.float64)
        sigmas = anchor.sigmas(others)
        symbols = anchor.quantize_deltas(others, anchor.bins(sigmas, level, self._third_bins))
        return Quantized(scale_bits, anchors, sigmas, symbols.transpose(0, 2, 1))

    def dequantize(self, quantized: Quantized, level: int, largest: float) -> F32:
        """Tensor ``(rows, tokens, channels)`` of the symbols, clamped to ``+-largest``."""
        row_bins = anchor.bins(quantized.sigmas, level, self._third_bins)
        others = quantized.deltas.transpose(0, 2, 1)
        if self.switches.deltas:
            anchors = quantized.anchors.transpose(0, 2, 1)
            return anchor.reconstruct(anchors, quantized.scale_bits, others, row_bins, largest)
        values = others * row_bins.astype(np.float64)[:, None, None]
        return np.clip(values, -largest, largest).astype(np.float32)

    def tables(self, counts: Counts) -> FrequencyTables:
        """Tables from counted symbols ``(rows, channels, 256)``."""
        if self.switches.channel_tables:
            return build_tables(counts)
        rows, channels, _ = counts.shape
        one = build_tables(counts.sum(axis=(0, 1), keepdims=True))
        return FrequencyTables(
            np.tile(one.first, (rows, channels)),
            np.tile(one.count, (rows, channels)),
            np.tile(one.frequencies, rows * channels),
        )

    def encode(self, kv: torch.Tensor, level: int, tables: VariantTables) -> dict[int, bytes]:
        """Sections of a chunk."""
        quantized = self.quantize(as_rows(kv), level)
        sections = {}
        if quantized.anchors.size:
            sections[SECTION_ANCHOR_SCALES] = quantized.scale_bits.astype("<u2").tobytes()
            anchors = self._backend.encode_streams(quantized.anchors, tables.anchors)
            sections[SECTION_ANCHOR_STREAMS] = write_streams(anchors)
        if quantized.deltas.size:
            sections[SECTION_DELTA_SIGMAS] = quantized.sigmas.astype("<f4").tobytes()
            others = self._backend.encode_streams(quantized.deltas, tables.others)
            sections[SECTION_DELTA_STREAMS] = write_streams(others)
        return sections

    def decode(
        self, sections: Mapping[int, memoryview], layout: ChunkLayout, level: int, tables: VariantTables
    ) -> torch.Tensor:
        """Chunk tensor of what ``encode`` wrote."""
        rows, channels = layout.shape.rows, layout.shape.channels
        scale_bits, anchors = np.empty((rows, 0), np.uint16), np.empty((rows, channels, 0), np.int32)
        sigmas, others = np.zeros(rows, np.float32), np.empty((rows, channels, 0), np.int32)
        if SECTION_ANCHOR_STREAMS in sections:
            scale_bits = np.frombuffer(sections[SECTION_ANCHOR_SCALES], "<u2").astype(np.uint16).reshape(rows, -1)
            coded = read_streams(
                sections[SECTION_ANCHOR_STREAMS], scale_bits.shape[1], tables.anchors, anchor.ANCHOR_LARGEST
            )
            anchors = self._backend.decode_streams(coded, scale_bits.shape[1], tables.anchors, slice(None))
        if SECTION_DELTA_STREAMS in sections:
            sigmas = np.frombuffer(sections[SECTION_DELTA_SIGMAS], "<f4").astype(np.float32)
            num_others = layout.num_tokens - scale_bits.shape[1]
            coded = read_streams(sections[SECTION_DELTA_STREAMS], num_others, tables.others, anchor.DELTA_LARGEST)
            others = self._backend.decode_streams(coded, num_others, tables.others, slice(None))
        quantized = Quantized(scale_bits, anchors, sigmas, others)
        x = self.dequantize(quantized, level, torch.finfo(layout.dtype.torch).max)
        return torch.from_numpy(x).to(layout.dtype.torch).reshape(layout.tensor_shape)
