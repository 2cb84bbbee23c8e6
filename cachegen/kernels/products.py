"""Products of symbols and a basis: the one floating-point stage that is left to the machine's matrix library."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import torch

# A library may compile a product for each size that it meets, which takes milliseconds and megabytes, and keep it, as
# oneDNN does for bfloat16. So sizes are multiples of these, filled up with zeros: there are fewer of them.
COEFFICIENT_MULTIPLE, TOKEN_MULTIPLE = 128, 64


def multiple(count: int, of: int) -> int:
    """The smallest multiple that is no less."""
    return -(-count // of) * of


@cache
def product_dtype(device_type: str) -> torch.dtype:
    """Element type that a device, ``cpu`` or ``cuda``, multiplies fastest of those that are precise enough.

    Symbols up to 256 are exact in bfloat16; larger ones, which the finest level has, are rounded, as the basis is,
    59 dB below the signal: far less than quantization.
    """
    if device_type != "cpu":
        return torch.bfloat16
    flags = Path("/proc/cpuinfo")
    native = flags.exists() and any(flag in flags.read_text() for flag in ("avx512_bf16", "amx_bf16"))
    return torch.bfloat16 if native else torch.float32
