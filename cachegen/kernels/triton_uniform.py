"""Uniform quantization on a GPU: the Triton twin of ``cachegen.kernels.uniform``, bit for bit."""

from __future__ import annotations

import torch
import triton.language as tl

from cachegen.kernels.triton_jit import EXACT, kernel, rint, tiles

BLOCK = 1024
LAUNCH = {"num_warps": 4, **EXACT}


@kernel
def quantize_kernel(y: tl.tensor, step: tl.tensor, size: tl.tensor, symbols: tl.tensor, block: tl.constexpr) -> None:
    """Symbols of some coefficients; the step comes in memory, since a number would come as float32."""
    at = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    value = tl.load(y + at, mask=at < size, other=0).to(tl.float64)
    tl.store(symbols + at, rint(value / tl.load(step)), mask=at < size)


def quantize(y: torch.Tensor, step: float) -> torch.Tensor:
    """Nearest multiple of the step for each coefficient, int32; ``|y / step|`` is at most ``SYMBOL_LARGEST``."""
    y = y.contiguous()
    symbols = torch.empty(y.shape, dtype=torch.int32, device=y.device)
    on_device = torch.tensor(step, dtype=torch.float64, device=y.device)
    quantize_kernel[(tiles(y.numel(), BLOCK),)](y, on_device, y.numel(), symbols, block=BLOCK, **LAUNCH)
    return symbols
