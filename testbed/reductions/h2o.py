"""Token dropping by accumulated attention, for each layer and KV head on its own: H2O, made offline.

Zhang et al., H2O: Heavy-Hitter Oracle, NeurIPS 2023 (arXiv:2306.14048): of the entries that may stay, one half are the
most recent ones, the other those to which attention has summed up most. H2O evicts while it generates; here the whole
context's own queries are known, as in the idealised version that CacheGen (SIGCOMM 2024) compares with. Keys stay as
they are, turned to their original positions, and the question follows at its own.
"""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from cachegen import KVCache, LanguageModel, UnsupportedModelError
from testbed.reductions.base import kept

# No vocabulary reaches so far.
_FIRST_ENTRY_ID = 1 << 31


def reduce(model: LanguageModel, whole: KVCache, share: float, chunk_tokens: int) -> KVCache:
    """See ``Reduction``."""
    sums = attention_sums(model, whole.token_ids, chunk_tokens)
    places = heavy_and_recent(sums, kept(share, whole.num_tokens))
    # [layers, 2, tokens, kv_heads, head_dim], and which tokens of it, [layers, 1, kept, kv_heads, 1]
    kv = whole.chunk(0, whole.num_tokens)
    index = places.transpose(1, 2)[:, None, :, :, None].expand(-1, 2, -1, -1, kv.shape[-1])
    small = model.new_cache(places.shape[-1])
    small.append(kv.gather(2, index.to(kv.device)), entry_ids(whole.token_ids, places))
    small.skipped_tokens = whole.num_tokens - small.num_tokens
    return small


def heavy_and_recent(sums: torch.Tensor, count: int) -> torch.Tensor:
    """Places of the entries that stay, in order.

    Parameters
    ----------
    sums : torch.Tensor
        Attention that each entry has received, ``[layers, kv_heads, tokens]``.
    count : int
        Entries that stay.

    Returns
    -------
    torch.Tensor
        ``[layers, kv_heads, count]``: the last ``count // 2``, and of those before them the ones with the largest sums.
    """
    tokens, recent = sums.shape[-1], count // 2
    heavy = sums[..., : tokens - recent].topk(count - recent, dim=-1).indices
    last = torch.arange(tokens - recent, tokens).expand(*sums.shape[:2], recent)
    return torch.cat([heavy.cpu(), last], dim=-1).sort(dim=-1).values


@torch.inference_mode()
def attention_sums(model: LanguageModel, token_ids: Sequence[int], chunk_tokens: int) -> torch.Tensor:
    """Attention that each token's entry receives from the queries of a whole context, ``[layers, kv_heads, tokens]``.

    Raises
    ------
    UnsupportedModelError
        The model shows no attention weights, or looks back through a sliding window.
    """
    if "sliding_attention" in (getattr(model.network.config, "layer_types", None) or ()):
        raise UnsupportedModelError(f"{model.name}: h2o is not defined within a sliding window")
    shape, cache = model.shape, model.new_cache(len(token_ids))
    sums = torch.zeros(shape.num_layers, shape.num_kv_heads, len(token_ids))
    with _attention_weights(model.network, sums) as layers_seen:
        for first in range(0, len(token_ids), chunk_tokens):
            layers_seen.clear()
            model.prefill(cache, token_ids[first : first + chunk_tokens])
            if layers_seen != set(range(shape.num_layers)):
                raise UnsupportedModelError(f"{model.name}: shows no attention weights in some layers, which h2o needs")
    return sums


@contextmanager
def _attention_weights(network: Any, sums: torch.Tensor) -> Iterator[set[int]]:
    """While active, add every layer's attention weights to ``sums``; the layers seen are noted."""
    seen: set[int] = set()

    def add(module: Any, _inputs: Any, output: Any) -> None:
        weights = output[1] if isinstance(output, tuple) and len(output) > 1 else None
        # [1, heads, queries, entries so far]
        if isinstance(weights, torch.Tensor) and weights.ndim == 4:
            layer, heads = int(module.layer_idx), sums.shape[1]
            per_head = weights[0].float().sum(1).cpu()
            sums[layer, :, : per_head.shape[-1]] += per_head.reshape(heads, -1, per_head.shape[-1]).sum(1)
            seen.add(layer)

    before = network.config._attn_implementation
    # the only implementation that shows its weights
    network.set_attn_implementation("eager")
    hooks = [module.register_forward_hook(add) for module in network.modules() if hasattr(module, "layer_idx")]
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()
        network.set_attn_implementation(before)


def entry_ids(token_ids: Sequence[int], places: torch.Tensor) -> list[int]:
    """Ids under which the entries are stored: they are of no single token, each head has its own.

    They lie outside every vocabulary, so that no prefill takes them for tokens, and depend on the whole context and on
    what was kept of it, so that no two selections share a chunk.
    """
    content = np.asarray(token_ids, "<u4").tobytes() + places.numpy().astype("<u4").tobytes()
    count = places.shape[-1]
    drawn = np.frombuffer(hashlib.shake_256(b"h2o entries\0" + content).digest(4 * count), "<u4")
    return [int(number) | _FIRST_ENTRY_ID for number in drawn]
