"""The ``raw`` codec: the tensor's own bytes, exact to the sign of zero."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import torch

from cachegen.codecs.base import CodecTables, check_section_ids, check_section_length, destination
from cachegen.errors import FormatError
from cachegen.kv import ChunkLayout, all_finite

SECTION_ELEMENTS = 1
# NumPy has no bfloat16.
_BITS = {2: torch.uint16, 4: torch.uint32}


class RawCodec:
    """Stores every element as it is, little-endian, in the order of the chunk tensor."""

    name = "raw"
    section_names: ClassVar[Mapping[int, str]] = {SECTION_ELEMENTS: "elements"}
    uses_tables = False

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
        return {SECTION_ELEMENTS: kv.contiguous().flatten().view(torch.uint8).numpy().tobytes()}

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
        check_section_ids(self.name, sections, (SECTION_ELEMENTS,))
        body = sections[SECTION_ELEMENTS]
        check_section_length(self.name, SECTION_ELEMENTS, body, layout.num_elements * layout.dtype.item_bytes)
        kv = destination(layout, "cpu", out)
        # a copy: the caller's bytes are not ours to share
        bits = np.frombuffer(body, dtype=f"<u{layout.dtype.item_bytes}").reshape(layout.tensor_shape)
        kv.view(_BITS[layout.dtype.item_bytes]).numpy()[...] = bits
        if not all_finite(kv):
            raise FormatError(f"codec {self.name}: section {SECTION_ELEMENTS} holds NaN or Inf")
        return kv
