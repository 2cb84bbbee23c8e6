"""The ``quant8``, ``quant4`` and ``quant3`` codecs: per-token max-abs uniform quantization, bit-packed.

The baseline that the CacheGen paper (SIGCOMM'24, section 7.1) calls default quantization.
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
    destination,
    read_scales,
)
from cachegen.codecs.bit_packing import pack_symbols, packed_bytes, unpack_symbols
from cachegen.errors import FormatError
from cachegen.kernels.scales import round_up_scales, scale_values
from cachegen.kv import ChunkLayout

SECTION_SCALES = 2
SECTION_SYMBOLS = 3


class QuantizeCodec:
    """Symmetric uniform quantization with one scale per (layer, K/V, token), over all channels.

    Parameters
    ----------
    bits : int
        8, 4 or 3. Values are -M..M with M = 2**(bits - 1) - 1, stored as value + M.
    """

    section_names: ClassVar[Mapping[int, str]] = {SECTION_SCALES: "scales", SECTION_SYMBOLS: "symbols"}
    uses_tables = False

    def __init__(self, bits: int) -> None:
        self.name = f"quant{bits}"
        self._bits = bits
        self._largest = 2 ** (bits - 1) - 1

    def encode(
        self,
        kv: torch.Tensor,
        level: int | None,
        tables: CodecTables | None,
        first_token: int,
        tokens_behind: int | None = None,
    ) -> dict[int, bytes]:
        """See ``Codec``."""
        del level, tables, first_token, tokens_behind
        # (layers * 2 * tokens, channels)
        x = kv.flatten(3).flatten(0, 2).float()
        scale_bits = round_up_scales(x.abs().amax(dim=1).numpy(), self._largest)
        scales = torch.from_numpy(scale_values(scale_bits))
        divisors = torch.where(scales > 0, scales, 1.0)
        symbols = x.div(divisors[:, None]).round_().add_(self._largest).to(torch.uint8).numpy().ravel()
        return {
            SECTION_SCALES: scale_bits.astype("<u2").tobytes(),
            SECTION_SYMBOLS: pack_symbols(symbols, self._bits).tobytes(),
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
        del level, tables, first_token
        check_section_ids(self.name, sections, (SECTION_SCALES, SECTION_SYMBOLS))
        num_scales = layout.shape.rows * layout.num_tokens
        check_section_length(self.name, SECTION_SCALES, sections[SECTION_SCALES], num_scales * SCALE_BYTES)
        length = packed_bytes(layout.num_elements, self._bits)
        check_section_length(self.name, SECTION_SYMBOLS, sections[SECTION_SYMBOLS], length)
        scales = torch.from_numpy(scale_values(read_scales(self.name, SECTION_SCALES, sections[SECTION_SCALES])))
        symbols = torch.from_numpy(self._read_symbols(sections[SECTION_SYMBOLS], layout.num_elements))
        finite = torch.finfo(layout.dtype.torch)
        kv = destination(layout, "cpu", out)
        rows = kv.view(layout.shape.rows, *kv.shape[2:])
        # row by row: float32 values of the whole chunk would take twice the output
        for row, row_symbols, row_scales in zip(
            rows, symbols.view(rows.shape), scales.view(rows.shape[:2]), strict=True
        ):
            x = row_symbols.float().sub_(self._largest).mul_(row_scales[:, None, None])
            row.copy_(x.clamp_(finite.min, finite.max))
        return kv

    def _read_symbols(self, body: memoryview, count: int) -> npt.NDArray[np.uint8]:
        packed = np.frombuffer(body, dtype=np.uint8)
        try:
            symbols = unpack_symbols(packed, self._bits, count)
        except FormatError as error:
            raise FormatError(f"codec {self.name}: section {SECTION_SYMBOLS}: {error}") from error
        if int(symbols.max()) > 2 * self._largest:
            at = int(symbols.argmax())
            raise FormatError(
                f"codec {self.name}: section {SECTION_SYMBOLS}: symbol {at} is {symbols[at]}, "
                f"at most {2 * self._largest}"
            )
        return symbols
