"""The queries and keys of every attention of a model, caught while it runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from cachegen.kv import KVShape

# Every fourth query describes a head well.
QUERY_STRIDE = 4
_PRODUCTS = (torch.matmul, torch.Tensor.matmul, torch.Tensor.__matmul__)
# Queries that a token's attention must be the mean of, to say anything.
_FEWEST_QUERIES = 16
_LEAST_ATTENTION = 1e-12


@dataclass(frozen=True)
class LayerAttention:
    """One layer's run over a context from its start.

    Parameters
    ----------
    queries : torch.Tensor
        ``(query heads, ceil(tokens / QUERY_STRIDE), head_dim)``, every fourth token's.
    keys : torch.Tensor
        ``(KV heads, tokens, head_dim)``.
    scale : float
        Of the scores.
    """

    queries: torch.Tensor
    keys: torch.Tensor
    scale: float


class AttentionCapture(TorchFunctionMode):
    """While active, keeps what the model's attentions are called with; entered anew, it forgets the run before.

    Attention has to go through ``torch.nn.functional.scaled_dot_product_attention``, or be written out as a product of
    queries and transposed keys; the model is run on an empty cache.

    Parameters
    ----------
    shape : KVShape
        The model's.
    """

    def __init__(self, shape: KVShape) -> None:
        super().__init__()
        self._shape = shape
        self._layers: list[LayerAttention] = []

    def __enter__(self) -> AttentionCapture:
        """Forget the run before."""
        self._layers = []
        super().__enter__()  # type: ignore[no-untyped-call]  # torch left it untyped
        return self

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """See ``TorchFunctionMode``."""
        kwargs = kwargs or {}
        if func is torch.nn.functional.scaled_dot_product_attention:
            self._keep(args[0], args[1], kwargs.get("scale"))
        elif self._is_score(func, args):
            self._keep(args[0], args[1].transpose(2, 3), None)
        return func(*args, **kwargs)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop; a run that failed leaves nothing."""
        super().__exit__(kind, error, trace)  # type: ignore[no-untyped-call]  # torch left it untyped
        if kind is not None:
            self._layers = []

    def layers(self) -> list[LayerAttention]:
        """Each layer of the last run; none if the attentions were not one a layer or fit no KV cache of the shape."""
        heads, dim = self._shape.num_kv_heads, self._shape.head_dim
        fits = all(
            layer.queries.shape[0] % heads == 0 and layer.keys.shape[0] == heads and layer.queries.shape[2] == dim
            for layer in self._layers
        )
        return self._layers if fits and len(self._layers) == self._shape.num_layers else []

    def _is_score(self, func: Callable[..., Any], args: Sequence[Any]) -> bool:
        """Whether this is the product of queries and transposed keys, in attention that is written out."""
        if func not in _PRODUCTS or len(args) < 2 or args[0].ndim != 4 or args[1].ndim != 4:
            return False
        _, _, tokens, dim = args[0].shape
        return bool(dim == self._shape.head_dim and args[1].shape[2:] == (dim, tokens))

    def _keep(self, queries: torch.Tensor, keys: torch.Tensor, scale: float | None) -> None:
        scale = 1 / math.sqrt(queries.shape[3]) if scale is None else scale
        # models may repeat each KV head for all query heads that share it
        repeats = max(1, keys.shape[1] // self._shape.num_kv_heads)
        some_queries, own_keys = queries[0, :, ::QUERY_STRIDE], keys[0, ::repeats]
        self._layers.append(LayerAttention(some_queries.detach().cpu().clone(), own_keys.detach().cpu().clone(), scale))


def received_attention(layers: Sequence[LayerAttention], num_tokens: int) -> torch.Tensor:
    """How much later tokens look at each token.

    Returns
    -------
    torch.Tensor
        ``(num_tokens,)``, log2 of the mean over later queries and all heads and layers of the squared attention; NaN
        where there are too few queries to say.
    """
    key_at = torch.arange(num_tokens)
    query_at = torch.arange(0, num_tokens, QUERY_STRIDE)
    later = key_at <= query_at[:, None]
    total = torch.zeros(num_tokens)
    fits = bool(layers) and all(layer.keys.shape[1] == num_tokens for layer in layers)
    for layer in layers if fits else []:
        groups = layer.queries.shape[0] // layer.keys.shape[0]
        for head, queries in enumerate(layer.queries):
            scores = queries.float() @ layer.keys[head // groups].float().T * layer.scale
            attention = torch.softmax(scores.masked_fill_(~later, -math.inf), dim=1)
            total += attention.square_().sum(dim=0) / (len(layers) * len(layer.queries))
    queries_behind = later.sum(dim=0)
    mean = (total / queries_behind.clamp_min(1)).clamp_min(_LEAST_ATTENTION).log2()
    return torch.where((queries_behind >= _FEWEST_QUERIES) & torch.tensor(fits), mean, torch.nan)
