"""The space of the ``transform`` codec in which equal errors do equal harm: from a chunk tensor and back."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from cachegen.codecs.transform_tables import TransformTables, Unit
from cachegen.kernels.uniform import SYMBOL_LARGEST


def forward(
    kv: torch.Tensor, transform: TransformTables, positions: npt.NDArray[np.int64]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and values ``(tokens, layers * channels)`` in the space where equal errors do equal harm, float32."""
    tokens, heads = kv.shape[2], kv.shape[0] * kv.shape[3]
    means = torch.from_numpy(transform.means)
    keys = transform.rotary.apply(kv[:, 0].float(), -positions)
    # (layers * kv_heads, tokens, head_dim)
    keys = keys.transpose(1, 2).reshape(heads, tokens, -1) - means[0].reshape(heads, 1, -1)
    keys = torch.bmm(keys, torch.from_numpy(transform.key_roots)).transpose(0, 1).reshape(tokens, -1)
    scales = torch.from_numpy(np.repeat(transform.value_scales, transform.shape.channels))
    values = kv[:, 1].float().transpose(0, 1).reshape(tokens, -1)
    return keys, (values - means[1]).mul_(scales)


def backward(
    x: torch.Tensor,
    half: int,
    step: float,
    transform: TransformTables,
    positions: npt.NDArray[np.int64],
    kv: torch.Tensor,
    coded: npt.NDArray[np.int64],
) -> None:
    """Inverse of ``forward`` for keys (half 0) or values (1), into the ``coded`` tokens of a chunk tensor.

    ``x`` is ``(tokens, layers * channels)`` in multiples of the step. One layer after the other, so that what is needed
    beside it stays small.
    """
    shape = transform.shape
    mean = torch.from_numpy(transform.means[half]).reshape(shape.num_layers, shape.num_kv_heads, 1, shape.head_dim)
    parts = x.reshape(len(x), shape.num_layers, shape.num_kv_heads, shape.head_dim).permute(1, 2, 0, 3)
    inverses = transform.inverse_key_roots.reshape(shape.num_layers, shape.num_kv_heads, shape.head_dim, -1)
    factors = [transform.rotary.factors(kind, positions) for kind in range(transform.rotary.kinds)]
    finite = torch.finfo(kv.dtype)
    where = slice(coded[0], coded[-1] + 1) if coded[-1] - coded[0] == len(coded) - 1 else torch.from_numpy(coded)
    for layer, part in enumerate(parts):
        if half == 0:
            kind = int(transform.rotary.of_layer[layer])
            keys = torch.baddbmm(mean[layer], part, inverses[layer], alpha=step)
            restored = transform.rotary.turn(keys, kind, factors[kind])
        else:
            restored = torch.add(mean[layer], part, alpha=step / float(transform.value_scales[layer]))
        kv[layer, half, where] = restored.clamp_(finite.min, finite.max).to(kv.dtype).transpose(0, 1)


def project(x: torch.Tensor, transform: TransformTables, unit: Unit, level: int) -> torch.Tensor:
    """Coefficients ``(rank, tokens)`` of one unit."""
    rank = int(transform.ranks[level, unit.index])
    basis = torch.from_numpy(transform.bases[unit.index][:rank]).float()
    return basis @ x[:, unit.first_channel : unit.end_channel].T


def representable(x: torch.Tensor, unit: Unit, y: torch.Tensor, step: float) -> npt.NDArray[np.bool_]:
    """Which tokens a unit's coefficients describe: no symbol too large, and no more lost than a step an element.

    The first guards the coder's range. The second catches what no calibration text had: a token whose energy lies
    where the level codes nothing.
    """
    in_range = (y.abs() <= step * SYMBOL_LARGEST).all(dim=0)
    lost = x[:, unit.first_channel : unit.end_channel].square().sum(dim=1) - y.square().sum(dim=0)
    mask: npt.NDArray[np.bool_] = (in_range & (lost <= unit.channels * step**2)).numpy()
    return mask
