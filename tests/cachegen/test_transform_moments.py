"""Moments of more channels than are added at one time."""

import numpy as np
import torch

from cachegen.codecs.rotary import no_rotary
from cachegen.kv import KVShape
from cachegen.transform_moments import TransformMoments


def test_covariances_are_those_of_all_pairs_of_channels():
    # 1,200 channels in one unit, in three blocks of rows
    shape = KVShape(num_layers=3, num_kv_heads=4, head_dim=50)
    rng = torch.Generator().manual_seed(0)
    few = torch.randn((40, 12), generator=rng)
    kv = (few @ torch.randn((12, 1200), generator=rng)).reshape(40, 3, 2, 4, 50).permute(1, 2, 0, 3, 4) + 5
    moments = TransformMoments(shape, no_rotary(3, 50))
    for first in (0, 20):
        moments.add(kv[:, :, first : first + 20], first)

    (unit,) = moments.units
    # the first four are sinks; keys of all heads, then values
    rows = kv[:, :, 4:].permute(1, 2, 0, 3, 4).reshape(2, 36, -1)
    expected = np.cov(torch.cat([rows[0], rows[1]], dim=1).numpy().T.astype(np.float64), bias=True)
    torch.testing.assert_close(moments.covariance(unit).double().numpy(), expected, rtol=1e-3, atol=1e-3)
