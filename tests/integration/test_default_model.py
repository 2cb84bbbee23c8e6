"""The default model: converted once, and its stored KV answers as a plain run does."""

from pydoc_data.topics import topics

import pytest
import torch

from cachegen import (
    ProfileBuilder,
    cached_profile,
    calculate_kv,
    default_model_path,
    generate_with_kv,
    get_kv,
    load_model,
    store_kv,
)

QUESTION = "\n\nQuestion: What is described above?\nAnswer:"


@pytest.fixture(scope="module")
def model():
    return load_model(default_model_path(), dtype=torch.float32)


@pytest.fixture(scope="module")
def native_model():
    return load_model(default_model_path())


def profile_of(model, cache):
    """A profile made of one context: raw chunks need none, but every stored context names one."""
    builder = ProfileBuilder(model.shape, model.fingerprint)
    builder.add(cache.chunk(0, cache.num_tokens))
    return builder.build()


def test_raw_kv_from_the_store_generates_exactly_the_plain_tokens(model, tmp_path):
    context = model.tokenize(topics["assignment"])[:600]
    question = model.tokenize(QUESTION)
    options = {"max_new_tokens": 32, "do_sample": False}
    ids = torch.tensor([context + question])
    plain = model._model.generate(ids, attention_mask=torch.ones_like(ids), **options)[0, ids.shape[1] :].tolist()

    cache = calculate_kv(model, context)
    profile = profile_of(model, cache)
    manifest = store_kv(str(tmp_path), model, cache, ["raw"], profile, chunk_tokens=256)
    loaded = get_kv(str(tmp_path), model, manifest.context_key, "raw", profile)
    generation = generate_with_kv(model, loaded, question, **options)

    assert generation.token_ids == plain
    assert generation.text == model.detokenize(plain)


def test_the_profile_of_set_up_is_found_and_codes_the_native_cache(native_model, tmp_path):
    def refuse(done, total):
        pytest.fail("the profile was not in the cache folder: set-up makes it")

    profile = cached_profile(native_model, refuse)
    context = native_model.tokenize(topics["operator-summary"])[:300]
    cache = calculate_kv(native_model, context)
    manifest = store_kv(str(tmp_path), native_model, cache, ["raw", "cachegen-1"], profile, 256)
    loaded = get_kv(str(tmp_path), native_model, manifest.context_key, "cachegen-1", profile)
    sizes = [sum(chunk.encodings[name] for chunk in manifest.chunks) for name in ("raw", "cachegen-1")]
    difference = (loaded.chunk(0, 300).float() - cache.chunk(0, 300).float()).pow(2).mean()

    assert sizes[1] < sizes[0] / 3
    assert difference < 0.05 * cache.chunk(0, 300).float().var()
