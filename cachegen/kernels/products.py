"""Products of symbols and a basis: the one floating-point stage that is left to the machine's matrix library."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import torch

# A library may compile a product for each size that it meets, which takes milliseconds and half a megabyte, and keep
# it, as oneDNN does for bfloat16. So sizes are multiples of these, filled up with zeros: there are fewer of them.
COEFFICIENT_MULTIPLE, TOKEN_MULTIPLE = 256, 64
# So few tokens are filled up to this many, and multiplied by all coefficients that there are.
FEW_TOKENS = 16
# What the factors of a profile are filled up to: 128 bytes of bfloat16, so that a row begins with a cache line.
_FACTOR_MULTIPLE = 64
# Tokens of one product. On a CPU more make it no faster, and all are multiplied by as many coefficients as the finest
# of them has; a GPU needs more work at a time.
_CPU_TOKENS, _GPU_TOKENS = 128, 2048


def multiple(count: int, of: int) -> int:
    """The smallest multiple that is no less."""
    return -(-count // of) * of


def product_columns(num_tokens: int) -> int:
    """Columns of a product for so many tokens."""
    return FEW_TOKENS if num_tokens <= FEW_TOKENS else multiple(num_tokens, TOKEN_MULTIPLE)


def product_depth(coefficients: int, whole: int, columns: int) -> int:
    """Coefficients of a product with so many columns that needs these, of a factor that has ``whole``."""
    return whole if columns <= FEW_TOKENS else min(whole, multiple(coefficients, COEFFICIENT_MULTIPLE))


def factor_rows(rows: int, most: int) -> int:
    """Coefficients that a factor with so many is filled up to, beyond ``most`` only by as much as alignment asks."""
    return multiple(max(rows, min(most, multiple(rows, COEFFICIENT_MULTIPLE))), _FACTOR_MULTIPLE)


def product_tokens(device_type: str) -> int:
    """Tokens of one product at most on a device, ``cpu`` or ``cuda``."""
    return _CPU_TOKENS if device_type == "cpu" else _GPU_TOKENS


@cache
def product_dtype(device_type: str) -> torch.dtype:
    """Element type that a device, ``cpu`` or ``cuda``, multiplies fastest of those that are precise enough.

    Symbols up to 256 are exact in bfloat16; larger ones, which the finest level and strong sinks have, are rounded, as
    the basis is, 59 dB below the signal: far less than quantization, but for a sink whose keys are far above the usual.
    """
    if device_type != "cpu":
        return torch.bfloat16
    flags = Path("/proc/cpuinfo")
    native = flags.exists() and any(flag in flags.read_text() for flag in ("avx512_bf16", "amx_bf16"))
    return torch.bfloat16 if native else torch.float32
