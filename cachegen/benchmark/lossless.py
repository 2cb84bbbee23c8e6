"""What a general compressor makes of the cache: zstd on its 16-bit elements, and on ``quant8``'s containers."""

from __future__ import annotations

from typing import Any

import torch
import zstandard

from cachegen.benchmark.timing import timed
from cachegen.encoding import Encoding
from cachegen.held_out import HeldOutText
from cachegen.profile import Profile

# zstd's own default
_LEVEL = 3


def compare_lossless(text: HeldOutText, profile: Profile) -> list[dict[str, Any]]:
    """Size and speed of zstd, chunk by chunk as the codecs are measured.

    Returns
    -------
    list of dict
        ``input``, ``level``, ``bytes``, ``bits_per_element``, ``encode_s``, ``decode_s``.
    """
    quantized = text.encode(profile, Encoding("quant8"))
    inputs = {"16-bit elements": [_in_16_bits(kv) for kv in text.chunks()], "quant8": quantized}
    return [{"input": name} | _zstd(bodies, text.num_elements) for name, bodies in inputs.items()]


def _in_16_bits(kv: torch.Tensor) -> bytes:
    """Elements in their own 16-bit type, or float16 where theirs is wider."""
    kv = kv.cpu() if kv.itemsize == 2 else kv.cpu().half()
    return kv.flatten().view(torch.uint8).numpy().tobytes()


def _zstd(bodies: list[bytes], num_elements: int) -> dict[str, Any]:
    compressor, decompressor = zstandard.ZstdCompressor(level=_LEVEL), zstandard.ZstdDecompressor()
    packed, encode_s = timed(lambda: [compressor.compress(body) for body in bodies])
    unpacked, decode_s = timed(lambda: [decompressor.decompress(body) for body in packed])
    assert unpacked == bodies
    num_bytes = sum(map(len, packed))
    return {
        "level": _LEVEL,
        "bytes": num_bytes,
        "bits_per_element": 8 * num_bytes / num_elements,
        "encode_s": encode_s,
        "decode_s": decode_s,
    }
