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
    SCALE_BYTES,
    CodecTables,
    check_section_ids,
    check_section_length,
    read_scales,
)
from cachegen.codecs.streams import read_streams, write_streams
from cachegen.errors import FormatError
from cachegen.kernels import get_backend
from cachegen.kernels.anchor import ANCHOR_LARGEST, DELTA_LARGEST, SIGMA_LARGEST, num_deltas, num_groups
from cachegen.kernels.base import F32, Backend, Quantized, Symbols
from cachegen.kernels.tables import FrequencyTables
from cachegen.kv import ChunkLayout

SECTION_ANCHOR_SCALES = 4
SECTION_ANCHOR_STREAMS = 5
SECTION_DELTA_SIGMAS = 6
SECTION_DELTA_STREAMS = 7
SIGMA_BYTES = 4


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
        self, kv: torch.Tensor, level: int | None, tables: CodecTables | None, first_token: int
    ) -> dict[int, bytes]:
        """See ``Codec``."""
        del first_token
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
    ) -> torch.Tensor:
        """See ``Codec``."""
        del first_token
        assert level is not None
        assert tables is not None
        quantized = self._read(sections, layout, tables.anchors, tables.deltas[level])
        x = self._backend.dequantize(quantized, level, torch.finfo(layout.dtype.torch).max)
        return torch.from_numpy(x).to(layout.dtype.torch).reshape(layout.tensor_shape)

    def _read(
        self,
        sections: Mapping[int, memoryview],
        layout: ChunkLayout,
        anchor_tables: FrequencyTables,
        delta_tables: FrequencyTables,
    ) -> Quantized:
        rows, channels = layout.shape.rows, layout.shape.channels
        groups, deltas = num_groups(layout.num_tokens), num_deltas(layout.num_tokens)
        ids: tuple[int, ...] = (SECTION_ANCHOR_SCALES, SECTION_ANCHOR_STREAMS)
        if deltas:
            ids += (SECTION_DELTA_SIGMAS, SECTION_DELTA_STREAMS)
        check_section_ids(self.name, sections, ids)
        scales = sections[SECTION_ANCHOR_SCALES]
        check_section_length(self.name, SECTION_ANCHOR_SCALES, scales, rows * groups * SCALE_BYTES)
        scale_bits = read_scales(self.name, SECTION_ANCHOR_SCALES, scales).reshape(rows, groups)
        anchors = self._read_symbols(sections, SECTION_ANCHOR_STREAMS, groups, anchor_tables, ANCHOR_LARGEST)
        if not deltas:
            nothing = np.empty((rows, channels, 0), dtype=np.int32)
            return Quantized(scale_bits, anchors, np.zeros(rows, dtype=np.float32), nothing)
        check_section_length(self.name, SECTION_DELTA_SIGMAS, sections[SECTION_DELTA_SIGMAS], rows * SIGMA_BYTES)
        sigmas = self._read_sigmas(sections[SECTION_DELTA_SIGMAS])
        symbols = self._read_symbols(sections, SECTION_DELTA_STREAMS, deltas, delta_tables, DELTA_LARGEST)
        return Quantized(scale_bits, anchors, sigmas, symbols)

    def _read_symbols(
        self,
        sections: Mapping[int, memoryview],
        section_id: int,
        num_tokens: int,
        tables: FrequencyTables,
        largest: int,
    ) -> Symbols:
        try:
            coded = read_streams(sections[section_id], num_tokens, tables, largest)
            return self._backend.decode_streams(coded, num_tokens, tables)
        except FormatError as error:
            raise FormatError(f"codec {self.name}: section {section_id}: {error}") from error

    def _read_sigmas(self, body: memoryview) -> npt.NDArray[np.float32]:
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
