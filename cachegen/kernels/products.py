"""Products of symbols and a basis: the one floating-point stage that is left to the machine's matrix library."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import torch

# A library may compile a product for each size that it meets, which takes milliseconds and megabytes, and keep it, as
# oneDNN does for bfloat16. So sizes are multiples of these, filled up with zeros: there are fewer of them.
COEFFICIENT_MULTIPLE, TOKEN_MULTIPLE = 128, 64
# Few tokens are filled up to a multiple of this: 64 of them take twice as long as 16, whose time is that of the basis.
_FEW_TOKENS_MULTIPLE = 16


def multiple(count: int, of: int) -> int:
    """The smallest multiple that is no less."""
    return -(-count // of) * of


def product_rows(num_tokens: int) -> int:
    """Rows of a product for so many tokens."""
    return multiple(num_tokens, TOKEN_MULTIPLE if num_tokens > TOKEN_MULTIPLE else _FEW_TOKENS_MULTIPLE)


def block_tokens(most: int) -> int:
    """Tokens of one product, where so many have room: a power of two, since each size that occurs takes memory."""
    return max(TOKEN_MULTIPLE, 1 << max(1, most).bit_length() - 1)


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
