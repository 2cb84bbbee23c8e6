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


class Backward:
    """Inverse of ``forward`` for a chunk's coded tokens, some KV heads at a time.

    Parameters
    ----------
    transform : TransformTables
    first_token : int
        Position of the chunk's first token.
    coded : int64 array, ``(tokens,)``
        Indices of the tokens in the chunk.
    steps : float64 array, ``(tokens,)``
        Of each of them.
    """

    def __init__(
        self,
        transform: TransformTables,
        first_token: int,
        coded: npt.NDArray[np.int64],
        steps: npt.NDArray[np.float64],
    ) -> None:
        self._transform = transform
        self.num_tokens = len(coded)
        self._steps = torch.from_numpy(steps.astype(np.float32))[:, None]
        self._factors = [transform.rotary.factors(kind, first_token + coded) for kind in range(transform.rotary.kinds)]
        self._where = torch.from_numpy(coded)

    def restore(self, x: torch.Tensor, half: int, first_head: int, tokens: slice, kv: torch.Tensor) -> None:
        """Put the keys (half 0) or values (1) of some KV heads, counted layer-major, in their places.

        ``x`` is ``(tokens, heads * head_dim)`` in multiples of the tokens' steps, of some of the coded tokens; it is
        overwritten.
        """
        per_layer, dim = self._transform.shape.num_kv_heads, self._transform.shape.head_dim
        parts = x.mul_(self._steps[tokens]).reshape(len(x), -1, dim).transpose(0, 1)
        end_head = first_head + len(parts)
        finite = torch.finfo(kv.dtype)
        for layer in range(first_head // per_layer, -(-end_head // per_layer)):
            heads = slice(max(first_head, layer * per_layer), min(end_head, (layer + 1) * per_layer))
            part = parts[heads.start - first_head : heads.stop - first_head]
            restored = self._values(part, half, layer, heads, tokens).clamp_(finite.min, finite.max)
            out = kv[layer, half, :, heads.start - layer * per_layer : heads.stop - layer * per_layer]
            out[self._where[tokens]] = restored.to(kv.dtype).transpose(0, 1)

    def _values(self, part: torch.Tensor, half: int, layer: int, heads: slice, tokens: slice) -> torch.Tensor:
        """``(heads, tokens, head_dim)`` of one layer."""
        transform, dim = self._transform, self._transform.shape.head_dim
        mean = torch.from_numpy(transform.means[half]).reshape(-1, 1, dim)[heads]
        if half == 1:
            return torch.add(mean, part, alpha=1 / float(transform.value_scales[layer]))
        kind = int(transform.rotary.of_layer[layer])
        keys = torch.baddbmm(mean, part, transform.inverse_key_roots[heads])
        cos, sin = self._factors[kind]
        return transform.rotary.turn(keys, kind, (cos[tokens], sin[tokens]))


def project(x: torch.Tensor, transform: TransformTables, unit: Unit, place: int) -> torch.Tensor:
    """Coefficients ``(rank, tokens)`` of one unit, as many as are coded at a step of the grid."""
    rank = int(transform.ranks[place, unit.index])
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
