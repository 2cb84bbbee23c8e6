"""A tiny model's context in a real file store, for tests of loading."""

from dataclasses import dataclass
from pathlib import Path

from tiny_models import random_tokens, tiny_llama

from cachegen import (
    KVCache,
    LanguageModel,
    LoadCosts,
    Manifest,
    Profile,
    ProfileBuilder,
    RecomputeCost,
    store_kv,
)

CHUNK_TOKENS = 16
LADDER = ["cachegen-0", "cachegen-2", "cachegen-4"]
# a second a chunk: any deadline below makes Algorithm 1 stream
COSTS = LoadCosts(RecomputeCost(1.0, 0.0, 0.0), reserve_s=0.0)


@dataclass
class StoredContext:
    """The context, the model it belongs to, and where it lies."""

    root: Path
    model: LanguageModel
    profile: Profile
    cache: KVCache
    manifest: Manifest


def store_context(root: Path, tokens: int = 56) -> StoredContext:
    """Store a context of three whole chunks and a tail of eight tokens, raw and at three levels."""
    model = tiny_llama()
    builder = ProfileBuilder(model.shape, model.fingerprint)
    for seed in range(4):
        calibration = model.new_cache(200)
        model.prefill(calibration, random_tokens(200, seed=100 + seed))
        builder.add(calibration.chunk(0, 200))
    profile = builder.build()
    cache = model.new_cache(tokens)
    model.prefill(cache, random_tokens(tokens))
    manifest = store_kv(str(root), model, cache, ["raw", "quant8", *LADDER], profile, CHUNK_TOKENS)
    return StoredContext(root, model, profile, cache, manifest)
