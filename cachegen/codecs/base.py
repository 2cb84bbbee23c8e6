"""What a codec is: a chunk tensor to named sections of bytes, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch

from cachegen.codecs.transform_tables import TransformTables
from cachegen.errors import FormatError
from cachegen.kernels.tables import FrequencyTables
from cachegen.kv import ChunkLayout
from cachegen.large_tensor import new_tensor

SCALE_BYTES = 2
# What decoding takes beside the chunk tensor, as a multiple of it.
DECODE_MEMORY = 1.25
_BFLOAT16_INFINITY = 0x7F80


@dataclass(frozen=True)
class CodecTables:
    """What a profile brings for the codecs.

    Parameters
    ----------
    anchors : FrequencyTables
        Of the ``cachegen`` codec.
    deltas : tuple of FrequencyTables
        Of the ``cachegen`` codec, for each level.
    transform : TransformTables or str
        Of the ``transform`` codec, or why it cannot code this model.
    """

    anchors: FrequencyTables
    deltas: tuple[FrequencyTables, ...]
    transform: TransformTables | str


class Codec(Protocol):
    """One way to code a chunk; stateless, so that any thread may use it.

    ``encode`` gets a CPU tensor that ``check_kv`` has passed. ``decode`` gets sections whose checksums match,
    but nothing else about them is sure: it raises FormatError for what ``encode`` could not have written.
    """

    @property
    def name(self) -> str:
        """Name in the registry and in the container."""
        ...

    @property
    def section_names(self) -> Mapping[int, str]:
        """What its sections hold, by id, for those who explain a container."""
        ...

    @property
    def uses_tables(self) -> bool:
        """Whether encode and decode need the tables of a profile."""
        ...

    def encode(
        self,
        kv: torch.Tensor,
        level: int | None,
        tables: CodecTables | None,
        first_token: int,
        tokens_behind: int | None = None,
    ) -> dict[int, bytes]:
        """Sections of a chunk by id, in the order in which they are stored.

        ``first_token`` is the position of the chunk's first token in its context, ``tokens_behind`` how many of the
        context's tokens follow the chunk, if that is known.
        """
        ...

    def decode(
        self,
        sections: Mapping[int, memoryview],
        layout: ChunkLayout,
        level: int | None,
        tables: CodecTables | None,
        first_token: int,
        out: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Tensor of ``layout``, in the host's memory or on the device of the codec's kernels.

        ``out`` is a tensor of that layout and :func:`destination` says whether the result is to be put there.
        """
        ...


def destination(layout: ChunkLayout, device: torch.device | str, out: torch.Tensor | None) -> torch.Tensor:
    """Tensor to decode into: ``out`` where there is one on the device that decodes, else a new one."""
    if out is not None and out.device == torch.device(device):
        return out
    return new_tensor(layout.tensor_shape, layout.dtype.torch, device)


def check_section_ids(codec: str, sections: Mapping[int, memoryview], expected: tuple[int, ...]) -> None:
    """Refuse a container whose sections are not exactly these, in this order."""
    if tuple(sections) != expected:
        raise FormatError(f"codec {codec} has sections {tuple(sections)}, must have {expected}")


def check_section_length(codec: str, section_id: int, body: memoryview, expected: int) -> None:
    """Refuse a section that is not exactly as long as the header's shape implies."""
    if len(body) != expected:
        raise FormatError(f"codec {codec}: section {section_id} has {len(body)} bytes, its shape implies {expected}")


def read_scales(
    codec: str, section_id: int, body: memoryview, infinity: int = _BFLOAT16_INFINITY
) -> npt.NDArray[np.uint16]:
    """Scales of a section; FormatError names the first that is negative, Inf or NaN.

    ``infinity`` is that of their 16-bit type, by default bfloat16.
    """
    bits = np.frombuffer(body, dtype="<u2").astype(np.uint16)
    bad = bits >= infinity
    if bad.any():
        at = int(bad.argmax())
        raise FormatError(f"codec {codec}: section {section_id}: scale {at} is {int(bits[at]):#06x}, not finite >= 0")
    return bits
