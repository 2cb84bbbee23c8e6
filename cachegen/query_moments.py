"""What the queries of a model see of its keys: second moments, gathered while it runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.overrides import TorchFunctionMode

from cachegen.codecs.rotary import Rotary
from cachegen.model import LanguageModel

# Every fourth query, and four of the positions that it may look back to, describe a head well.
_QUERY_STRIDE = 4
_LOOKS_BACK = 4
_PRODUCTS = (torch.matmul, torch.Tensor.matmul, torch.Tensor.__matmul__)


class QueryMoments(TorchFunctionMode):
    """While active, adds up what the queries of every attention see of keys, in the keys' un-rotated frame.

    The score of a query at position p and a key at position s depends on the query turned back by s. Averaged over the
    positions s that a query may look back to, the second moments of such queries weigh errors of keys.

    Parameters
    ----------
    model : LanguageModel
        Attention has to go through ``torch.nn.functional.scaled_dot_product_attention``, or be written out as a product
        of queries and transposed keys; it is run on an empty cache.
    rotary : Rotary
        How its keys turn.
    """

    def __init__(self, model: LanguageModel, rotary: Rotary) -> None:
        super().__init__()
        self._shape, self._rotary = model.shape, rotary
        self._random = np.random.default_rng(0)
        self._seen: list[torch.Tensor] = []
        size = (model.shape.num_layers, model.shape.num_kv_heads, model.shape.head_dim, model.shape.head_dim)
        self._moments = torch.zeros(size)

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """See ``TorchFunctionMode``."""
        if func is torch.nn.functional.scaled_dot_product_attention or self._scores(func, args):
            self._seen.append(args[0][0, :, ::_QUERY_STRIDE].detach().float().cpu())
        return func(*args, **(kwargs or {}))

    def _scores(self, func: Callable[..., Any], args: Sequence[Any]) -> bool:
        """Whether this is the product of queries and transposed keys, in attention that is written out."""
        if func not in _PRODUCTS or len(args) < 2 or args[0].ndim != 4 or args[1].ndim != 4:
            return False
        _, _, tokens, dim = args[0].shape
        return bool(dim == self._shape.head_dim and args[1].shape[2:] == (dim, tokens))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Take in the queries of the run."""
        super().__exit__(kind, error, trace)  # type: ignore[no-untyped-call]  # torch left it untyped
        layers, heads, dim = self._moments.shape[:3]
        fits = all(q.shape[0] % heads == 0 and q.shape[2] == dim for q in self._seen)
        if kind is None and len(self._seen) == layers and fits:
            for layer, queries in enumerate(self._seen):
                self._add(layer, queries)
        self._seen = []

    def _add(self, layer: int, queries: torch.Tensor) -> None:
        heads, dim = self._moments.shape[1], self._moments.shape[3]
        own = np.arange(queries.shape[1]) * _QUERY_STRIDE
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
