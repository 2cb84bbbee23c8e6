"""What the queries of a model see of its keys: second moments."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from cachegen.attention_capture import QUERY_STRIDE, LayerAttention
from cachegen.codecs.rotary import Rotary
from cachegen.kv import KVShape

# Of the positions that a query may look back to, so many describe it well.
_LOOKS_BACK = 4


class QueryMoments:
    """Adds up what the queries of every attention see of keys, in the keys' un-rotated frame.

    The score of a query at position p and a key at position s depends on the query turned back by s. Averaged over the
    positions s that a query may look back to, the second moments of such queries weigh errors of keys.

    Parameters
    ----------
    shape : KVShape
        The model's.
    rotary : Rotary
        How its keys turn.
    """

    def __init__(self, shape: KVShape, rotary: Rotary) -> None:
        self._rotary = rotary
        self._random = np.random.default_rng(0)
        self._moments = torch.zeros(shape.num_layers, shape.num_kv_heads, shape.head_dim, shape.head_dim)

    def add(self, layers: Sequence[LayerAttention]) -> None:
        """Take in the queries of a run, see ``AttentionCapture.layers``."""
        for layer, attention in enumerate(layers):
            self._add(layer, attention.queries.float())

    def _add(self, layer: int, queries: torch.Tensor) -> None:
        heads, dim = self._moments.shape[1], self._moments.shape[3]
        own = np.arange(queries.shape[1]) * QUERY_STRIDE
        kind = [int(self._rotary.of_layer[layer])]
        turn = Rotary(np.zeros(1, np.uint8), self._rotary.frequencies[kind], self._rotary.partners[kind])
        for _ in range(_LOOKS_BACK):
            seen = self._random.integers(0, own + 1)
            turned = turn.apply(queries.transpose(0, 1)[None], -seen)[0]
            per_head = turned.reshape(len(own), heads, -1, dim).transpose(0, 1).reshape(heads, -1, dim)
            self._moments[layer] += per_head.transpose(1, 2) @ per_head

    def key_metrics(self) -> npt.NDArray[np.float32] | None:
        """Moments for each head, ``(layers * kv_heads, head_dim, head_dim)``; None if attention went another way."""
        if not bool(self._moments.any()):
            return None
        return self._moments.flatten(0, 1).numpy()
