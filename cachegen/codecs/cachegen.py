"""The ``cachegen`` codec: anchors and deltas of token groups, entropy-coded with a profile's tables.

CacheGen (SIGCOMM'24), section 5.2. The stages stand in ``cachegen.kernels``; a backend runs them.
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
from cachegen.codecs.row_streams import RowStreams
from cachegen.codecs.streams import write_streams
from cachegen.errors import FormatError
from cachegen.kernels import get_backend
from cachegen.kernels.anchor import ANCHOR_LARGEST, DELTA_LARGEST, SIGMA_LARGEST, bins, num_deltas, num_groups
from cachegen.kernels.base import F32, Backend, Quantized
from cachegen.kernels.tables import FrequencyTables
from cachegen.kv import ChunkLayout

SECTION_ANCHOR_SCALES = 4
SECTION_ANCHOR_STREAMS = 5
SECTION_DELTA_SIGMAS = 6
SECTION_DELTA_STREAMS = 7
SIGMA_BYTES = 4
# Symbols and values of one element while its row is decoded.
_DECODE_BYTES = 4 + 4


class CachegenCodec:
    """The paper's codec.

    Parameters
    ----------
    backend : str
        Name of the backend that runs the stages; all give the same bytes and the same tensors.
    """

    name = "cachegen"
    section_names: ClassVar[Mapping[int, str]] = {
        SECTION_ANCHOR_SCALES: "anchor scales",
        SECTION_ANCHOR_STREAMS: "anchor streams",
        SECTION_DELTA_SIGMAS: "delta sigmas",
        SECTION_DELTA_STREAMS: "delta streams",
    }
    uses_tables = True

    def __init__(self, backend: str) -> None:
        self._backend_name = backend

    @property
    def _backend(self) -> Backend:
        return get_backend(self._backend_name)

    def encode(
        self,
        kv: torch.Tensor,
        level: int | None,
        tables: CodecTables | None,
        first_token: int,
        tokens_behind: int | None = None,
    ) -> dict[int, bytes]:
        """See ``Codec``."""
        del first_token, tokens_behind
        assert level is not None
        assert tables is not None
        quantized = self._backend.quantize(as_rows(kv), level)
        anchors = self._backend.encode_streams(quantized.anchors, tables.anchors)
        sections = {
            SECTION_ANCHOR_SCALES: quantized.scale_bits.astype("<u2").tobytes(),
            SECTION_ANCHOR_STREAMS: write_streams(anchors),
        }
        if quantized.deltas.size:
            deltas = self._backend.encode_streams(quantized.deltas, tables.deltas[level])
            sections[SECTION_DELTA_SIGMAS] = quantized.sigmas.astype("<f4").tobytes()
            sections[SECTION_DELTA_STREAMS] = write_streams(deltas)
        return sections

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
        del first_token
        assert level is not None
        assert tables is not None
        groups, num_coded = num_groups(layout.num_tokens), num_deltas(layout.num_tokens)
        ids: tuple[int, ...] = (SECTION_ANCHOR_SCALES, SECTION_ANCHOR_STREAMS)
        if num_coded:
            ids += (SECTION_DELTA_SIGMAS, SECTION_DELTA_STREAMS)
        check_section_ids(self.name, sections, ids)
        rows = layout.shape.rows
        scale_bits = self._read_scales(sections[SECTION_ANCHOR_SCALES], rows, groups)
        sigmas = self._read_sigmas(sections[SECTION_DELTA_SIGMAS], rows) if num_coded else np.zeros(rows, np.float32)
        row_bins = bins(sigmas, level)
        anchors = self._streams(sections, SECTION_ANCHOR_STREAMS, tables.anchors, groups, ANCHOR_LARGEST)
        deltas = self._streams(sections, SECTION_DELTA_STREAMS, tables.deltas[level], num_coded, DELTA_LARGEST)
        kv = destination(layout, self._backend.device, out)
        into = kv.view(rows, *kv.shape[2:])

        def decode_rows(which: slice) -> None:
            part = Quantized(scale_bits[which], anchors.decode(which), sigmas[which], deltas.decode(which))
            self._backend.dequantize(part, row_bins[which], into[which])

        row_bytes = layout.num_tokens * layout.shape.channels * _DECODE_BYTES
        self._backend.each(decode_rows, rows, row_bytes, int(layout.num_bytes * DECODE_MEMORY))
        return kv

    def _streams(
        self,
        sections: Mapping[int, memoryview],
        section_id: int,
        tables: FrequencyTables,
        num_tokens: int,
        largest: int,
    ) -> RowStreams:
        place = f"codec {self.name}: section {section_id}"
        return RowStreams(place, sections.get(section_id), tables, num_tokens, largest, self._backend)

    def _read_scales(self, body: memoryview, rows: int, groups: int) -> npt.NDArray[np.uint16]:
        check_section_length(self.name, SECTION_ANCHOR_SCALES, body, rows * groups * SCALE_BYTES)
        return read_scales(self.name, SECTION_ANCHOR_SCALES, body).reshape(rows, groups)

    def _read_sigmas(self, body: memoryview, rows: int) -> npt.NDArray[np.float32]:
        check_section_length(self.name, SECTION_DELTA_SIGMAS, body, rows * SIGMA_BYTES)
        sigmas = np.frombuffer(body, dtype="<f4").astype(np.float32)
        # written so that NaN fails too
        bad = ~((sigmas >= 0) & (sigmas <= SIGMA_LARGEST)) | np.signbit(sigmas)
        if bad.any():
            row = int(bad.argmax())
            raise FormatError(
                f"codec {self.name}: section {SECTION_DELTA_SIGMAS}: sigma of row {row} is {sigmas[row]}, "
                f"must be in 0..{SIGMA_LARGEST}"
            )
        return sigmas


def as_rows(kv: torch.Tensor) -> F32:
    """Chunk tensor as float32 ``(rows, tokens, channels)``, contiguous; a row is a (layer, K/V) pair."""
    return kv.flatten(3).flatten(0, 1).float().contiguous().numpy()
