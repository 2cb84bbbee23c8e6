"""Calculate, store, get and use: the paper's four calls."""

import asyncio

import pytest
import torch
from stored_context import CHUNK_TOKENS, LADDER, store_context
from tiny_models import random_tokens, tiny_gpt2, tiny_llama, tiny_sliding

from cachegen import (
    InvalidInputError,
    MismatchError,
    ProfileBuilder,
    UnknownNameError,
    calculate_kv,
    generate_with_kv,
    get_kv,
    store_kv,
)
from cachegen.manifest import chunk_name


def profile_of(model):
    builder = ProfileBuilder(model.shape, model.fingerprint)
    builder.add(calculate_kv(model, random_tokens(200, seed=50)).chunk(0, 200))
    return builder.build()


@pytest.mark.parametrize("make", [tiny_llama, tiny_gpt2, tiny_sliding])
def test_a_stored_raw_cache_comes_back_bit_for_bit_for_every_family(make, tmp_path):
    model = make()
    cache, profile = calculate_kv(model, random_tokens(45)), profile_of(model)
    manifest = store_kv(str(tmp_path), model, cache, ["raw"], profile, chunk_tokens=20)
    loaded = get_kv(str(tmp_path), model, manifest.context_key, "raw", profile)

    assert torch.equal(loaded.chunk(0, 45), cache.chunk(0, 45))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_coded_levels_get_smaller_and_worse(dtype, tmp_path):
    model = tiny_llama()
    model._model.to(dtype)
    model = type(model)(model._model, None, "llama")
    cache, profile = calculate_kv(model, random_tokens(300)), profile_of(model)
    manifest = store_kv(str(tmp_path), model, cache, ["quant8", *LADDER], profile, chunk_tokens=128)
    sizes, errors = [], []
    for name in LADDER:
        loaded = get_kv(str(tmp_path), model, manifest.context_key, name, profile)
        sizes.append(sum(chunk.encodings[name] for chunk in manifest.chunks))
        errors.append((loaded.chunk(0, 300).float() - cache.chunk(0, 300).float()).pow(2).mean().item())

    assert sizes == sorted(sizes, reverse=True)
    assert errors == sorted(errors)
    assert errors[0] > 0


@pytest.mark.parametrize("first", ["longer", "shorter"])
def test_contexts_that_share_a_prefix_do_not_change_each_others_chunks(tmp_path, first):
    """The transform's bytes depend on where the context ends, so the second context takes the first one's."""
    model = tiny_llama()
    tokens = {"longer": random_tokens(192), "shorter": random_tokens(192)[:64]}
    profile = profile_of(model)
    order = [first, *(name for name in tokens if name != first)]
    manifests, files = {}, {}
    for name in order:
        cache = calculate_kv(model, tokens[name])
        manifests[name] = store_kv(str(tmp_path), model, cache, ["transform-3"], profile, chunk_tokens=64)
        files[name] = {path: path.read_bytes() for path in sorted(tmp_path.rglob("transform-3"))}

    assert all(files[order[1]][path] == data for path, data in files[first].items())
    for name, manifest in manifests.items():
        cache = calculate_kv(model, tokens[name])
        loaded = get_kv(str(tmp_path), model, manifest.context_key, "transform-3", profile)
        # decoded, not recomputed
        assert not torch.equal(loaded.chunk(0, 64), cache.chunk(0, 64))
        assert float((loaded.chunk(0, 64) - cache.chunk(0, 64)).std()) < 0.5 * float(cache.chunk(0, 64).std())


def test_a_damaged_chunk_in_the_store_is_replaced(tmp_path):
    model = tiny_llama()
    cache, profile = calculate_kv(model, random_tokens(64)), profile_of(model)
    store_kv(str(tmp_path), model, cache, ["transform-3"], profile)
    [path] = tmp_path.rglob("transform-3")
    sound = path.read_bytes()
    path.write_bytes(sound[:-1] + bytes([sound[-1] ^ 1]))
    store_kv(str(tmp_path), model, cache, ["transform-3"], profile)

    assert path.read_bytes() == sound


def test_equal_prefixes_share_their_chunks_in_the_store(tmp_path):
    stored = store_context(tmp_path)
    before = {path for path in (tmp_path / "chunks").rglob("*") if path.is_file()}
    longer = stored.model.new_cache(80)
    stored.model.prefill(longer, stored.cache.token_ids[:48] + random_tokens(20, seed=8))
    manifest = store_kv(str(tmp_path), stored.model, longer, ["raw"], stored.profile, 16)
    after = {path for path in (tmp_path / "chunks").rglob("*") if path.is_file()}

    assert [chunk.key for chunk in manifest.chunks[:3]] == [chunk.key for chunk in stored.manifest.chunks[:3]]
    assert len(after - before) == 2


def test_generation_leaves_the_cache_for_the_next_question(tmp_path):
    model = tiny_llama()
    model._tokenizer = _Spelling()
    cache = calculate_kv(model, random_tokens(30))
    first = generate_with_kv(model, cache, random_tokens(3, seed=1), max_new_tokens=5, do_sample=False)
    generate_with_kv(model, cache, random_tokens(4, seed=2), max_new_tokens=5, do_sample=False)
    again = generate_with_kv(model, cache, random_tokens(3, seed=1), max_new_tokens=5, do_sample=False)

    assert first == again
    assert len(first.token_ids) == 5
    assert first.text == " ".join(map(str, first.token_ids))


class _Spelling:
    def decode(self, token_ids, skip_special_tokens):
        assert skip_special_tokens
        return " ".join(map(str, token_ids))


def test_prefill_in_pieces_calculates_the_same_cache():
    model, tokens = tiny_llama(), random_tokens(50)
    whole, pieces = calculate_kv(model, tokens), calculate_kv(model, tokens, chunk_tokens=17)
    torch.testing.assert_close(whole.chunk(0, 50), pieces.chunk(0, 50))


def test_an_encoding_that_was_not_stored_is_refused(tmp_path):
    stored = store_context(tmp_path)
    with pytest.raises(InvalidInputError, match="no chunk is stored as quant4"):
        get_kv(str(tmp_path), stored.model, stored.manifest.context_key, "quant4", stored.profile)


def test_unknown_and_missing_encodings_are_refused_before_anything_is_written(tmp_path):
    stored = store_context(tmp_path / "a")
    for encodings, error in ((["gzip"], UnknownNameError), ([], InvalidInputError)):
        with pytest.raises(error):
            store_kv(str(tmp_path / "b"), stored.model, stored.cache, encodings, stored.profile)
    assert not (tmp_path / "b").exists()


def test_an_empty_context_is_refused():
    with pytest.raises(InvalidInputError, match="num_tokens must be at least 1"):
        calculate_kv(tiny_llama(), [])


def test_a_context_loads_where_a_loop_runs_already_as_in_a_notebook(tmp_path):
    stored = store_context(tmp_path)

    async def cell():
        return get_kv(str(tmp_path), stored.model, stored.manifest.context_key, "raw", stored.profile)

    assert torch.equal(asyncio.run(cell()).chunk(0, 56), stored.cache.chunk(0, 56))


def test_another_models_cache_is_not_stored(tmp_path):
    stored = store_context(tmp_path / "a")
    other = tiny_llama(seed=3)
    with pytest.raises(MismatchError, match="the KV cache is of model"):
        store_kv(str(tmp_path / "b"), other, stored.cache, ["raw"], profile_of(other))
    assert not (tmp_path / "b").exists()


def test_storing_again_mends_a_damaged_chunk(tmp_path):
    stored = store_context(tmp_path)
    path = tmp_path / chunk_name(stored.manifest.chunks[0].key, "raw")
    whole = path.read_bytes()
    path.write_bytes(bytes(len(whole)))
    store_kv(str(tmp_path), stored.model, stored.cache, ["raw"], stored.profile, CHUNK_TOKENS)
    assert path.read_bytes() == whole
