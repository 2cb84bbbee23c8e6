"""Read the form of a model's KV cache off a run of it, and refuse by name what is not keys and values alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from transformers.cache_utils import DummyLayer, DynamicLayer, DynamicSlidingWindowLayer

from cachegen.errors import InvalidInputError, UnsupportedModelError
from cachegen.kv import KVShape, dtype_of

# A layer that slides drops what it no longer looks at; kept in full, the model's own mask hides the same tokens.
_PLAIN_LAYERS = (DynamicLayer, DynamicSlidingWindowLayer)
_PROBE_TOKENS = 2


@dataclass(frozen=True)
class CacheForm:
    """What a model's cache is made of.

    Parameters
    ----------
    shape : KVShape
        Layers with keys and values of their own, KV heads and head size.
    sharing_layers : int
        Layers behind them that have none and read an earlier layer's.
    dtype : torch.dtype
        Element type of keys and values.
    """

    shape: KVShape
    sharing_layers: int
    dtype: torch.dtype


def model_title(network: Any, name: str) -> str:
    """What errors call a model: its name and its type."""
    return f"{name} ({network.config.model_type})"


@torch.inference_mode()
def probe_cache(network: Any, name: str) -> CacheForm:
    """Run two tokens and look at the cache that the model itself makes.

    Raises
    ------
    UnsupportedModelError
        The cache is not one K and one V tensor a layer, alike in all layers, with one entry a token; the text says
        which layer is otherwise and how.
    """
    title = model_title(network, name)
    if network.config.is_encoder_decoder:
        raise UnsupportedModelError(f"{title}: an encoder-decoder model has no single KV cache to stream")
    layers = list(getattr(getattr(_run(network, title), "cache", None), "layers", []))
    if not layers:
        raise UnsupportedModelError(f"{title}: its forward pass returns no KV cache")
    own = _without_sharing(layers)
    for place, layer in enumerate(own):
        if type(layer) not in _PLAIN_LAYERS:
            raise UnsupportedModelError(
                f"{title}: layer {place} keeps a {type(layer).__name__}: a state that is not, or not only, keys and "
                "values of each token"
            )
        if layer.keys is None:
            raise UnsupportedModelError(f"{title}: layer {place} keeps no keys and values")
    first = own[0].keys
    for place, layer in enumerate(own):
        _check_alike(title, place, layer, first)
    try:
        shape = KVShape(num_layers=len(own), num_kv_heads=first.shape[1], head_dim=first.shape[3])
        dtype_of(first)
    except InvalidInputError as error:
        raise UnsupportedModelError(f"{title}: {error}") from error
    return CacheForm(shape, len(layers) - len(own), first.dtype)


def _run(network: Any, title: str) -> Any:
    ids = torch.zeros((1, _PROBE_TOKENS), dtype=torch.long, device=network.device)
    try:
        return network(ids, use_cache=True)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # whatever a model's own code raises for plain tokens, it needs more than those
        raise UnsupportedModelError(f"{title}: does not run on tokens alone: {error!r}") from error


def _without_sharing(layers: list[Any]) -> list[Any]:
    own = list(layers)
    while own and type(own[-1]) is DummyLayer:
        own.pop()
    return own


def _check_alike(title: str, place: int, layer: Any, first: torch.Tensor) -> None:
    keys, values = layer.keys, layer.values
    if keys.ndim != 4 or keys.shape[:1] != (1,) or keys.shape[2] != _PROBE_TOKENS:
        raise UnsupportedModelError(
            f"{title}: layer {place} keeps keys {tuple(keys.shape)} for {_PROBE_TOKENS} tokens, "
            f"not (1, KV heads, {_PROBE_TOKENS}, head_dim)"
        )
    if keys.shape != values.shape:
        raise UnsupportedModelError(
            f"{title}: layer {place} keeps {_heads(keys)} as keys and {_heads(values)} as values, as multi-head latent "
            "attention does; they must be alike"
        )
    if keys.shape != first.shape or {keys.dtype, values.dtype} != {first.dtype}:
        raise UnsupportedModelError(
            f"{title}: layer {place} keeps {_heads(keys)} and layer 0 {_heads(first)}; all layers must be alike"
        )


def _heads(x: torch.Tensor) -> str:
    return f"{x.shape[1]} heads of {x.shape[3]} {str(x.dtype).removeprefix('torch.')}"
