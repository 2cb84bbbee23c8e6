"""The ``cachegen-repo`` codec: what the authors' published code does (commit 6bed34c), which is not their paper's.

No anchors, no deltas, no offline tables: each token is quantized by its largest magnitude over all channels, then coded
with a table for each (layer, K/V, channel) that is made from the chunk itself and sent along. It is a baseline, so
whatever costs bytes there costs them here:

- a table in every object, 33 entries of 16 bits for each channel, although layers of fewer bins need fewer;
- the length of each bitstream in 32 bits, although two bytes would do;
- a bitstream for each (256 tokens, layer, K/V, channel), each ended and aligned by itself.

Whatever crashes or corrupts there does not here: tokens of zeros, values without a finite quotient, more than 65,535
tokens, streams longer than 256 bytes, damaged tables, lengths and streams, chunks of any size, and every dtype.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch

from cachegen.codecs.base import SCALE_BYTES, CodecTables, check_section_ids, check_section_length, read_scales
from cachegen.codecs.cachegen import as_rows
from cachegen.codecs.published_levels import PUBLISHED_LEVELS, largest_values, row_bins
from cachegen.errors import FormatError
from cachegen.kernels.base import F32
from cachegen.kernels.cumulative import check_cumulative_tables, cumulative_tables
from cachegen.kernels.range_coder import U8, Cdfs, CodedRuns, most_bytes, num_runs, run_spans
from cachegen.kernels.scales import round_up_scales, scale_values
from cachegen.kv import ChunkLayout

SECTION_TOKEN_SCALES = 10
SECTION_TABLES = 11
SECTION_STREAM_LENGTHS = 12
SECTION_STREAMS = 13
_TABLE_ENTRY_BYTES = 2
_LENGTH_BYTES = 4
_FLOAT16_INFINITY = 0x7C00
_BFLOAT16_LARGEST = 0x7F7F

U16 = npt.NDArray[np.uint16]


class CachegenRepoCodec:
    """The published code's codec at its three levels; all parts stand in the chunk, none in a profile."""

    name = "cachegen-repo"
    uses_tables = False
    section_names: ClassVar[Mapping[int, str]] = {
        SECTION_TOKEN_SCALES: "scales",
        SECTION_TABLES: "tables",
        SECTION_STREAM_LENGTHS: "stream lengths",
        SECTION_STREAMS: "streams",
    }

    def encode(
        self, kv: torch.Tensor, level: int | None, tables: CodecTables | None, first_token: int
    ) -> dict[int, bytes]:
        """See ``Codec``."""
        # its compiler takes a while to import
        from cachegen.kernels import numba_range

        del tables, first_token
        assert level is not None
        x = as_rows(kv)
        scale_bits, scales = token_scales(x, kv.dtype)
        symbols = quantize(x, scales, largest_values(row_bins(level, kv.shape[0])))
        cdfs = cumulative_tables(symbols, PUBLISHED_LEVELS[level].table_bins)
        coded = numba_range.encode_runs(symbols, cdfs)
        return {
            SECTION_TOKEN_SCALES: scale_bits.astype("<u2").tobytes(),
            SECTION_TABLES: cdfs.astype("<u2").tobytes(),
            SECTION_STREAM_LENGTHS: coded.lengths.astype("<i4").tobytes(),
            SECTION_STREAMS: coded.data.tobytes(),
        }

    def decode(
        self,
        sections: Mapping[int, memoryview],
        layout: ChunkLayout,
        level: int | None,
        tables: CodecTables | None,
        first_token: int,
    ) -> torch.Tensor:
        """See ``Codec``."""
        from cachegen.kernels import numba_range

        del tables, first_token
        assert level is not None
        check_section_ids(
            self.name, sections, (SECTION_TOKEN_SCALES, SECTION_TABLES, SECTION_STREAM_LENGTHS, SECTION_STREAMS)
        )
        scales = self._read_scales(sections[SECTION_TOKEN_SCALES], layout)
        cdfs = self._read_tables(sections[SECTION_TABLES], layout, PUBLISHED_LEVELS[level].table_bins)
        coded = self._read_runs(sections, layout)
        largest = largest_values(row_bins(level, layout.shape.num_layers))
        try:
            symbols = numba_range.decode_runs(coded, layout.num_tokens, cdfs)
            check_symbols(symbols, largest)
        except FormatError as error:
            raise FormatError(f"codec {self.name}: section {SECTION_STREAMS}: {error}") from error
        kv = torch.empty(layout.tensor_shape, dtype=layout.dtype.torch)
        rows = kv.view(layout.shape.rows, layout.num_tokens, layout.shape.channels)
        for row in range(layout.shape.rows):
            rows[row].copy_(torch.from_numpy(dequantize(symbols[row], scales[row], int(largest[row]))))
        return kv

    def _read_scales(self, body: memoryview, layout: ChunkLayout) -> F32:
        rows, num_tokens = layout.shape.rows, layout.num_tokens
        check_section_length(self.name, SECTION_TOKEN_SCALES, body, rows * num_tokens * SCALE_BYTES)
        if layout.dtype.torch == torch.float16:
            bits = read_scales(self.name, SECTION_TOKEN_SCALES, body, _FLOAT16_INFINITY)
            return bits.view(np.float16).astype(np.float32).reshape(rows, num_tokens)
        return scale_values(read_scales(self.name, SECTION_TOKEN_SCALES, body)).reshape(rows, num_tokens)

    def _read_tables(self, body: memoryview, layout: ChunkLayout, num_bins: int) -> Cdfs:
        shape = (layout.shape.rows, layout.shape.channels, num_bins + 1)
        check_section_length(self.name, SECTION_TABLES, body, int(np.prod(shape)) * _TABLE_ENTRY_BYTES)
        cdfs = np.frombuffer(body, dtype="<u2").astype(np.uint16).reshape(shape)
        try:
            check_cumulative_tables(cdfs)
        except FormatError as error:
            raise FormatError(f"codec {self.name}: section {SECTION_TABLES}: {error}") from error
        return cdfs

    def _read_runs(self, sections: Mapping[int, memoryview], layout: ChunkLayout) -> CodedRuns:
        """Bitstreams, each as long as one of its number of symbols can be."""
        body = sections[SECTION_STREAM_LENGTHS]
        shape = (num_runs(layout.num_tokens), layout.shape.rows, layout.shape.channels)
        check_section_length(self.name, SECTION_STREAM_LENGTHS, body, int(np.prod(shape)) * _LENGTH_BYTES)
        lengths = np.frombuffer(body, dtype="<i4").astype(np.int32).reshape(shape)
        most = np.array([most_bytes(end - first) for first, end in run_spans(layout.num_tokens)])[:, None, None]
        bad = (lengths < 1) | (lengths > most)
        if bad.any():
            run, row, channel = (int(i) for i in np.unravel_index(bad.argmax(), shape))
            raise FormatError(
                f"codec {self.name}: section {SECTION_STREAM_LENGTHS}: bitstream of run {run}, row {row}, channel "
                f"{channel} has {lengths[run, row, channel]} bytes, must be in 1..{most[run, 0, 0]}"
            )
        data = sections[SECTION_STREAMS]
        check_section_length(self.name, SECTION_STREAMS, data, int(lengths.sum(dtype=np.int64)))
        return CodedRuns(lengths, np.frombuffer(data, dtype=np.uint8).copy())


def token_scales(x: F32, dtype: torch.dtype) -> tuple[U16, F32]:
    """Largest magnitude of each token of ``x (rows, tokens, channels)``: its 16 bits and its value, ``(rows, tokens)``.

    Exact in the tensor's own dtype; that of a float32 tensor, which the published code never meets, is rounded up to
    bfloat16, or down to its largest finite number.
    """
    largest = np.abs(x).max(axis=2)
    if dtype == torch.float16:
        return largest.astype(np.float16).view(np.uint16), largest
    bits = np.minimum(round_up_scales(largest, 1), np.uint16(_BFLOAT16_LARGEST))
    return bits, scale_values(bits)


def quantize(x: F32, scales: F32, largest: npt.NDArray[np.int64]) -> U8:
    """Symbols ``(rows, channels, tokens)`` in 0..2M: ``round(x * (M / scale) + M)`` in float32, half to even.

    A token of zeros has the symbol M throughout. A scale below 2**-122, whose quotient overflows, gets the largest
    quotient there is.
    """
    rows, num_tokens, channels = x.shape
    symbols = np.empty((rows, channels, num_tokens), dtype=np.uint8)
    for row in range(rows):
        divisors = np.where(scales[row] > 0, scales[row], 1).astype(np.float64)
        factors = np.minimum(largest[row] / divisors, np.finfo(np.float32).max).astype(np.float32)
        symbols[row] = np.rint(x[row] * factors[:, None] + np.float32(largest[row])).T
    return symbols


def dequantize(symbols: U8, scales: F32, largest: int) -> F32:
    """Values ``(tokens, channels)`` of one row's ``symbols (channels, tokens)``: ``(symbol - M) / M * scale``."""
    x = symbols.T.astype(np.float32)
    x -= np.float32(largest)
    x /= np.float32(largest)
    x *= scales[:, None]
    return x


def check_symbols(symbols: U8, largest: npt.NDArray[np.int64]) -> None:
    """Refuse symbols beyond those of their layer, which its table gives room to nevertheless."""
    bad = symbols.max(axis=(1, 2)) > 2 * largest
    if bad.any():
        row = int(bad.argmax())
        raise FormatError(f"row {row} has symbol {symbols[row].max()}, at most {2 * largest[row]}")
