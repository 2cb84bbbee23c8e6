"""16-bit floats by integer arithmetic are those that NumPy and PyTorch round to."""

import numpy as np
import torch

from cachegen.kernels.cast import bfloat16_bits, float16_bits


def near_every(finite):
    """Values, the middles between them, and the float32 numbers on both sides of these."""
    middles = ((finite[:-1].astype(np.float64) + finite[1:]) / 2).astype(np.float32)
    below, above = np.nextafter(middles, -np.float32(np.inf)), np.nextafter(middles, np.float32(np.inf))
    return np.concatenate([finite, middles, below, above])


def test_float16_is_rounded_as_numpy_rounds_it():
    every = np.arange(2**16, dtype=np.uint16).view(np.float16)
    values = near_every(np.sort(every[np.isfinite(every)].astype(np.float32)))
    found = np.array([float16_bits(value, bits) for value, bits in zip(values, values.view(np.uint32), strict=True)])

    assert np.array_equal(found, values.astype(np.float16).view(np.uint16))


def test_bfloat16_is_rounded_as_torch_rounds_it():
    every = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(torch.bfloat16).float().numpy()
    values = near_every(np.sort(every[np.isfinite(every)]))
    found = np.array([bfloat16_bits(bits) for bits in values.view(np.uint32)])

    wanted = torch.from_numpy(values).bfloat16().view(torch.uint16).numpy()
    assert np.array_equal(found, wanted)
