"""Scales of vector-wise quantization: bfloat16, rounded up so that no value leaves the integer range."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def round_up_scales(max_abs: npt.NDArray[np.float32], largest: int) -> npt.NDArray[np.uint16]:
    """Bits of the smallest bfloat16 ``s`` with ``s * largest >= max_abs``, for each entry.

    Because the scale is never below ``max_abs / largest``, a quotient ``x / s`` never exceeds ``largest``,
    also for subnormal and for the largest finite inputs. A row of zeros gets scale 0.
    """
    wanted = max_abs.astype(np.float64) / largest
    bits = wanted.astype(np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0xFFFF)) >> np.uint32(16)
    # the division may have rounded down onto a bfloat16 value
    rounded += (rounded << np.uint32(16)).view(np.float32) < wanted
    return rounded.astype(np.uint16)


def scale_values(bits: npt.NDArray[np.uint16]) -> npt.NDArray[np.float32]:
    """Value of each bfloat16 scale; exact."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
