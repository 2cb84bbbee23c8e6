"""How a GPU kernel is compiled, and the device functions that kernels share.

Triton has no rounding half to even and no count of set bits, and its interpreter no correct cast to bfloat16: here they
are, in operations that give the same bits interpreted and compiled. Parameters of kernels are annotated ``tl.tensor``,
which is what a pointer or a number is inside of one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
import triton
import triton.language as tl

# Fusing a product with a sum would round once where the reference rounds twice.
EXACT: Final = {"enable_fp_fusion": False}

# 1.5 * 2**52: float64 numbers near it are whole, so that a sum with it is rounded half to even.
_WHOLE = tl.constexpr(6755399441055744.0)


def kernel(function: Callable[..., Any]) -> Any:
    """Compile a function with Triton on its first launch, for the types that it is launched with."""
    return triton.jit(function)


@kernel
def rint(value: tl.tensor) -> tl.tensor:
    """Nearest integer of float64 values below 2**31, half to even, as int32."""
    return ((value + _WHOLE) - _WHOLE).to(tl.int32)


@kernel
def popcount(bits: tl.tensor) -> tl.tensor:
    """Set bits of uint32 values, as int32; the compiler knows this pattern and makes one instruction of it."""
    bits = bits - ((bits >> 1) & 0x55555555)
    bits = (bits & 0x33333333) + ((bits >> 2) & 0x33333333)
    bits = (bits + (bits >> 4)) & 0x0F0F0F0F
    return ((bits * 0x01010101) >> 24).to(tl.int32)


@kernel
def channel_offset(channel: tl.tensor, head_dim: tl.tensor, head_stride: tl.tensor, dim_stride: tl.tensor) -> tl.tensor:
    """Offset of channels within a token whose heads and elements lie at any strides."""
    return (channel // head_dim).to(tl.int64) * head_stride + (channel % head_dim).to(tl.int64) * dim_stride


@kernel
def load_float64(pointer: tl.tensor, mask: tl.tensor, is_bfloat16: tl.constexpr) -> tl.tensor:
    """Values as float64, exact; bfloat16 ones come as uint16."""
    value = tl.load(pointer, mask=mask, other=0)
    if is_bfloat16:
        value = (value.to(tl.uint32) << 16).to(tl.float32, bitcast=True)
    return value.to(tl.float64)


@kernel
def store_float32(pointer: tl.tensor, value: tl.tensor, mask: tl.tensor, is_bfloat16: tl.constexpr) -> None:
    """Store finite float32 values rounded to the pointer's type, half to even; bfloat16 ones go as uint16."""
    if is_bfloat16:
        bits = value.to(tl.uint32, bitcast=True)
        tl.store(pointer, ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).to(tl.uint16), mask=mask)
    else:
        tl.store(pointer, value.to(pointer.dtype.element_ty), mask=mask)


def elements(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor as kernels take it: bfloat16 as its bits."""
    return tensor.view(torch.uint16) if tensor.dtype == torch.bfloat16 else tensor


def tiles(size: int, tile: int) -> int:
    """Tiles that cover a size."""
    return -(-size // tile)


# Set when this module was imported: decorators have chosen by then.
INTERPRETED: Final = not isinstance(popcount, triton.JITFunction)
