"""Contexts that do not fill their chunks, and chunks recomputed after a rejected load, answer as a clean run does."""

import itertools
from functools import cache

import pytest
import torch
from families import letters
from tiny_models import random_tokens, tiny_gpt2, tiny_llama, tiny_sliding

from cachegen import (
    LanguageModel,
    ProfileBuilder,
    calculate_kv,
    decode_chunk,
    encode_chunk,
    generate_with_kv,
    get_kv,
    parse_encoding,
    store_kv,
)
from cachegen.manifest import chunk_name
from cachegen.pipeline import context_identities

CHUNK_TOKENS = 16
QUESTION = random_tokens(4, seed=9)
GREEDY = {"max_new_tokens": 10, "do_sample": False}
MODELS = pytest.mark.parametrize("make", [tiny_llama, tiny_gpt2, tiny_sliding])


@cache
def with_letters(make):
    model = make()
    return LanguageModel(model.network, letters(), model.name)


@cache
def profile_of(model):
    builder = ProfileBuilder(model.shape, model.fingerprint)
    builder.add(calculate_kv(model, random_tokens(200, seed=50)).chunk(0, 200))
    return builder.build()


def clean_answer(model, tokens):
    """Of the model's own generate, without any cache of ours."""
    ids = torch.tensor([[*tokens, *QUESTION]])
    return model.network.generate(ids, attention_mask=torch.ones_like(ids), **GREEDY)[0, ids.shape[1] :].tolist()


def answer(model, loaded):
    return generate_with_kv(model, loaded, QUESTION, **GREEDY).token_ids


# One token; less than a chunk; whole chunks; a tail of one token; a tail of all but one.
@MODELS
@pytest.mark.parametrize("length", [1, 7, 2 * CHUNK_TOKENS, 2 * CHUNK_TOKENS + 1, 3 * CHUNK_TOKENS - 1])
def test_a_context_of_any_length_is_stored_whole_and_answers_as_a_clean_run(make, length, tmp_path):
    model = with_letters(make)
    tokens, profile = random_tokens(length), profile_of(model)
    manifest = store_kv(str(tmp_path), model, calculate_kv(model, tokens), ["raw"], profile, CHUNK_TOKENS)
    loaded = get_kv(str(tmp_path), model, manifest.context_key, "raw", profile)

    assert [chunk.num_tokens for chunk in manifest.chunks] == [
        min(CHUNK_TOKENS, length - first) for first in range(0, length, CHUNK_TOKENS)
    ]
    assert loaded.token_ids == tokens
    assert answer(model, loaded) == clean_answer(model, tokens)


@MODELS
@pytest.mark.parametrize("length", [1, 2 * CHUNK_TOKENS + 1])
@pytest.mark.parametrize("encoding", ["quant8", "cachegen-0"])
def test_a_tail_of_one_token_is_coded_at_a_level_too(make, length, encoding, tmp_path):
    model = with_letters(make)
    source, profile = calculate_kv(model, random_tokens(length)), profile_of(model)
    manifest = store_kv(str(tmp_path), model, source, [encoding], profile, CHUNK_TOKENS)
    loaded = get_kv(str(tmp_path), model, manifest.context_key, encoding, profile)
    tail, own = loaded.chunk(length - 1, length), source.chunk(length - 1, length)
    assert not torch.equal(tail, own)  # decoded, not recomputed
    assert float((tail - own).norm() / own.norm()) < 0.3


@MODELS
@pytest.mark.parametrize("harm", ["missing", "cut", "flipped", "another context's"])
@pytest.mark.parametrize("index", [0, 1, 3])
def test_a_chunk_that_is_not_taken_is_recomputed_and_the_answer_is_that_of_a_clean_run(make, harm, index, tmp_path):
    """First, middle, and a last one of a single token; the rest of the context is loaded."""
    model = with_letters(make)
    tokens, profile = random_tokens(3 * CHUNK_TOKENS + 1), profile_of(model)
    manifest = store_kv(str(tmp_path), model, calculate_kv(model, tokens), ["raw"], profile, CHUNK_TOKENS)
    path = tmp_path / chunk_name(manifest.chunks[index].key, "raw")
    whole = path.read_bytes()
    if harm == "missing":
        path.unlink()
    elif harm == "cut":
        path.write_bytes(whole[: len(whole) // 2])
    elif harm == "flipped":
        path.write_bytes(whole[:-40] + bytes([whole[-40] ^ 1]) + whole[-39:])
    else:
        other = calculate_kv(model, random_tokens(len(tokens), seed=8))
        foreign = store_kv(str(tmp_path), model, other, ["raw"], profile, CHUNK_TOKENS).chunks[index].key
        path.write_bytes((tmp_path / chunk_name(foreign, "raw")).read_bytes())
    loaded = get_kv(str(tmp_path), model, manifest.context_key, "raw", profile)

    assert loaded.token_ids == tokens
    torch.testing.assert_close(loaded.chunk(0, len(tokens)), calculate_kv(model, tokens).chunk(0, len(tokens)))
    assert answer(model, loaded) == clean_answer(model, tokens)


@MODELS
def test_a_middle_recomputed_behind_coded_chunks_is_what_the_model_makes_behind_them(make, tmp_path):
    """What a lossy level changed in front of the middle, the middle sees, and nothing else."""
    model = with_letters(make)
    tokens, profile = random_tokens(3 * CHUNK_TOKENS), profile_of(model)
    manifest = store_kv(str(tmp_path), model, calculate_kv(model, tokens), ["cachegen-2"], profile, CHUNK_TOKENS)
    whole = get_kv(str(tmp_path), model, manifest.context_key, "cachegen-2", profile)
    (tmp_path / chunk_name(manifest.chunks[1].key, "cachegen-2")).unlink()
    loaded = get_kv(str(tmp_path), model, manifest.context_key, "cachegen-2", profile)

    clean, middle, end = model.new_cache(len(tokens)), CHUNK_TOKENS, 2 * CHUNK_TOKENS
    clean.append(whole.chunk(0, middle), tokens[:middle])
    model.prefill(clean, tokens[middle:end])
    clean.append(whole.chunk(end, len(tokens)), tokens[end:])
    assert torch.equal(loaded.chunk(0, len(tokens)), clean.chunk(0, len(tokens)))
    assert answer(model, loaded) == answer(model, clean)


@MODELS
@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_chunks_decoded_in_any_order_behind_a_recomputed_front_answer_as_a_clean_run(make, order):
    model = with_letters(make)
    tokens, profile, raw = random_tokens(3 * CHUNK_TOKENS + 1), profile_of(model), parse_encoding("raw")
    source, loaded = calculate_kv(model, tokens), model.new_cache(len(tokens))
    _front, *rest = context_identities(tokens, CHUNK_TOKENS, model.fingerprint, profile.hash)
    for place in order:
        span, identity = rest[place]
        data = encode_chunk(source.chunk(*span), raw, identity, profile)
        loaded.write(span[0], decode_chunk(data, profile, identity).kv)
    model.prefill(loaded, tokens[:CHUNK_TOKENS])
    loaded.commit(tokens[CHUNK_TOKENS:])

    assert loaded.token_ids == tokens
    assert answer(model, loaded) == clean_answer(model, tokens)
