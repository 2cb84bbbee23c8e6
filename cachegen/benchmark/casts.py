"""What a plain cast to 8-bit floats makes of the cache, as serving systems do."""

from __future__ import annotations

from typing import Any

import torch

from cachegen.benchmark.timing import timed
from cachegen.held_out import HeldOutText

_CASTS = {"fp8 e4m3": torch.float8_e4m3fn, "fp8 e5m2": torch.float8_e5m2}


def compare_casts(text: HeldOutText) -> list[dict[str, Any]]:
    """Harm and speed of each cast, elements beyond its range clamped to it, no scales.

    Returns
    -------
    list of dict
        ``cast``, ``bytes``, ``bits_per_element``, ``kl``, ``agreement``, ``dppl``, ``encode_s``, ``decode_s``.
    """
    return [{"cast": name} | _cast(text, dtype) for name, dtype in _CASTS.items()]


def _cast(text: HeldOutText, dtype: torch.dtype) -> dict[str, Any]:
    chunks, largest = text.chunks(), torch.finfo(dtype).max
    small, encode_s = timed(lambda: [kv.clamp(-largest, largest).to(dtype) for kv in chunks])
    loaded, decode_s = timed(lambda: [kv.to(text.model.dtype) for kv in small])
    num_bytes = sum(kv.nbytes for kv in small)
    return {
        "bytes": num_bytes,
        "bits_per_element": 8 * num_bytes / text.num_elements,
        **text.quality_of(loaded).to_json(),
        "encode_s": encode_s,
        "decode_s": decode_s,
    }
