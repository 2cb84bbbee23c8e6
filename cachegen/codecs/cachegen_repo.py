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

from cachegen.codecs.base import (
    DECODE_MEMORY,
    SCALE_BYTES,
    CodecTables,
    check_section_ids,
    check_section_length,
    destination,
    read_scales,
)
from cachegen.codecs.cachegen import as_rows
from cachegen.codecs.published_levels import PUBLISHED_LEVELS, largest_values, row_bins
from cachegen.codecs.published_quantizer import dequantize, quantize, token_scales
from cachegen.errors import FormatError
from cachegen.kernels import cast, get_backend, get_range_coder
from cachegen.kernels.base import F32
from cachegen.kernels.cumulative import check_cumulative_tables, cumulative_tables
from cachegen.kernels.range_coder import Cdfs, CodedRow, RangeCoder, most_bytes, num_runs, run_spans
from cachegen.kernels.scales import scale_values
from cachegen.kernels.workers import map_in_threads
from cachegen.kv import ChunkLayout

SECTION_TOKEN_SCALES = 10
SECTION_TABLES = 11
SECTION_STREAM_LENGTHS = 12
SECTION_STREAMS = 13
_TABLE_ENTRY_BYTES = 2
_LENGTH_BYTES = 4
_FLOAT16_INFINITY = 0x7C00
# Symbol and value of one element while its row is decoded.
_DECODE_BYTES = 1 + 4


class CachegenRepoCodec:
    """The published code's codec at its three levels; all parts stand in the chunk, none in a profile.

    Parameters
    ----------
    backend : str
        Name of the range coder that runs; all give the same bytes and the same tensors.
    """

    name = "cachegen-repo"
    uses_tables = False
    section_names: ClassVar[Mapping[int, str]] = {
        SECTION_TOKEN_SCALES: "scales",
        SECTION_TABLES: "tables",
        SECTION_STREAM_LENGTHS: "stream lengths",
        SECTION_STREAMS: "streams",
    }

    def __init__(self, backend: str) -> None:
        self._backend_name = backend

    @property
    def _coder(self) -> RangeCoder:
        return get_range_coder(self._backend_name)

    def encode(
        self,
        kv: torch.Tensor,
        level: int | None,
        tables: CodecTables | None,
        first_token: int,
        tokens_behind: int | None = None,
    ) -> dict[int, bytes]:
        """See ``Codec``."""
        del tables, first_token, tokens_behind
        assert level is not None
        x = as_rows(kv)
        scale_bits, scales = token_scales(x, kv.dtype)
        largest = largest_values(row_bins(level, kv.shape[0]))
        num_bins, coder = PUBLISHED_LEVELS[level].table_bins, self._coder

        def encode_row(row: int) -> tuple[Cdfs, CodedRow]:
            symbols = quantize(x[row], scales[row], int(largest[row]))
            cdfs = cumulative_tables(symbols, num_bins)
            return cdfs, coder.encode_row(symbols, cdfs)

        encoded = map_in_threads(encode_row, range(len(x)))
        lengths, streams = _by_run([coded for _, coded in encoded])
        return {
            SECTION_TOKEN_SCALES: scale_bits.astype("<u2").tobytes(),
            SECTION_TABLES: np.stack([cdfs for cdfs, _ in encoded]).astype("<u2").tobytes(),
            SECTION_STREAM_LENGTHS: lengths.astype("<i4").tobytes(),
            SECTION_STREAMS: streams,
        }

    def decode(
        self,
        sections: Mapping[int, memoryview],
        layout: ChunkLayout,
        level: int | None,
        tables: CodecTables | None,
        first_token: int,
        out: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """See ``Codec``."""
        del tables, first_token
        assert level is not None
        check_section_ids(
            self.name, sections, (SECTION_TOKEN_SCALES, SECTION_TABLES, SECTION_STREAM_LENGTHS, SECTION_STREAMS)
        )
        num_rows, num_tokens, channels = layout.shape.rows, layout.num_tokens, layout.shape.channels
        scales = self._read_scales(sections[SECTION_TOKEN_SCALES], layout)
        cdfs = self._read_tables(sections[SECTION_TABLES], layout, PUBLISHED_LEVELS[level].table_bins)
        coded = self._read_rows(sections, layout)
        largest = largest_values(row_bins(level, layout.shape.num_layers))
        coder = self._coder
        kv = destination(layout, "cpu", out)
        into = kv.view(num_rows, *kv.shape[2:])

        def decode_rows(which: slice) -> None:
            for row in range(*which.indices(num_rows)):
                try:
                    symbols = coder.decode_row(coded[row], num_tokens, cdfs[row])
                    x = dequantize(symbols, scales[row], int(largest[row]))
                except FormatError as error:
                    raise FormatError(f"codec {self.name}: section {SECTION_STREAMS}: row {row}: {error}") from error
                cast.store(x[None], into[row : row + 1])

        row_bytes = num_tokens * channels * _DECODE_BYTES
        get_backend("numba").each(decode_rows, num_rows, row_bytes, int(layout.num_bytes * DECODE_MEMORY))
        return kv

    def _read_scales(self, body: memoryview, layout: ChunkLayout) -> F32:
        rows, num_tokens = layout.shape.rows, layout.num_tokens
        check_section_length(self.name, SECTION_TOKEN_SCALES, body, rows * num_tokens * SCALE_BYTES)
        if layout.dtype.torch == torch.float16:
            bits = read_scales(self.name, SECTION_TOKEN_SCALES, body, _FLOAT16_INFINITY)
            return bits.view(np.float16).astype(np.float32).reshape(rows, num_tokens)
        return scale_values(read_scales(self.name, SECTION_TOKEN_SCALES, body)).reshape(rows, num_tokens)

    def _read_tables(self, body: memoryview, layout: ChunkLayout, num_bins: int) -> npt.NDArray[np.uint16]:
        shape = (layout.shape.rows, layout.shape.channels, num_bins + 1)
        check_section_length(self.name, SECTION_TABLES, body, int(np.prod(shape)) * _TABLE_ENTRY_BYTES)
        cdfs = np.frombuffer(body, dtype="<u2").astype(np.uint16).reshape(shape)
        try:
            check_cumulative_tables(cdfs)
        except FormatError as error:
            raise FormatError(f"codec {self.name}: section {SECTION_TABLES}: {error}") from error
        return cdfs

    def _read_rows(self, sections: Mapping[int, memoryview], layout: ChunkLayout) -> list[CodedRow]:
        """Bitstreams of each row, none longer than its number of symbols can make it."""
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
        streams = sections[SECTION_STREAMS]
        check_section_length(self.name, SECTION_STREAMS, streams, int(lengths.sum(dtype=np.int64)))
        return _by_row(lengths, np.frombuffer(streams, dtype=np.uint8))


def _by_run(coded: list[CodedRow]) -> tuple[npt.NDArray[np.int32], bytes]:
    """Lengths ``(runs, rows, channels)`` and bitstreams of all rows, in the order of the chunk: run by run."""
    lengths = np.stack([row.lengths for row in coded], axis=1)
    ends = [np.cumsum(row.lengths.sum(axis=1, dtype=np.int64)) for row in coded]
    pieces = [np.split(row.data, row_ends[:-1]) for row, row_ends in zip(coded, ends, strict=True)]
    return lengths, b"".join(piece.tobytes() for run in zip(*pieces, strict=True) for piece in run)


def _by_row(lengths: npt.NDArray[np.int32], streams: npt.NDArray[np.uint8]) -> list[CodedRow]:
    """Inverse of ``_by_run``."""
    num_rows = lengths.shape[1]
    ends = np.cumsum(lengths.sum(axis=2, dtype=np.int64).ravel())
    pieces = np.split(streams, ends[:-1])
    return [
        CodedRow(np.ascontiguousarray(lengths[:, row]), np.concatenate(pieces[row::num_rows]))
        for row in range(num_rows)
    ]
