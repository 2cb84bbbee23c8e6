"""Contexts go through every store by the public calls and come back as from a folder."""

from contextlib import ExitStack

import pytest
from store_servers import CREDENTIALS, running_redis, running_s3
from tiny_models import random_tokens

from cachegen import KVCache, calculate_kv, generate_with_kv, get_kv, load_model, store_kv
from cachegen.errors import StoreError

CHUNK_TOKENS = 16
ENCODINGS = ("raw", "cachegen-2", "transform-3")
QUESTION = (5, 17, 42)


@pytest.fixture(scope="module", params=["memory", "redis", "s3"])
def url(request, tmp_path_factory):
    """An empty store of one kind."""
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        for name, value in CREDENTIALS.items():
            patch.setenv(name, value)
        match request.param:
            case "memory":
                yield "memory://loads"
            case "redis":
                yield stack.enter_context(running_redis(tmp_path_factory.mktemp("redis"))).url
            case "s3":
                yield f"s3://bucket-1/kv?endpoint={stack.enter_context(running_s3('bucket-1'))}"


@pytest.fixture(scope="module")
def model(model_files):
    return load_model(model_files.folder)


@pytest.fixture(scope="module")
def cache(model):
    return calculate_kv(model, random_tokens(56))


@pytest.fixture(scope="module")
def folder(model, cache, model_files, tmp_path_factory):
    """A folder with the same context."""
    root = tmp_path_factory.mktemp("folder")
    store_kv(str(root), model, cache, ENCODINGS, model_files.profile, CHUNK_TOKENS)
    return str(root)


def same(first: KVCache, second: KVCache) -> bool:
    """Whether two caches are equal bit for bit."""
    return first.token_ids == second.token_ids and first.chunk(0, 56).equal(second.chunk(0, 56))


def test_what_was_stored_comes_back_as_from_a_folder(url, folder, model, cache, model_files):
    key = store_kv(url, model, cache, ENCODINGS, model_files.profile, CHUNK_TOKENS).context_key
    got = {encoding: get_kv(url, model, key, encoding, model_files.profile) for encoding in ENCODINGS}

    assert same(got["raw"], cache)
    for encoding, loaded in got.items():
        assert same(loaded, get_kv(folder, model, key, encoding, model_files.profile)), encoding
        assert same(loaded, cache) == (encoding == "raw")
    answers = [
        generate_with_kv(model, each, QUESTION, max_new_tokens=8, do_sample=False) for each in (cache, got["raw"])
    ]
    assert answers[0] == answers[1]


def test_a_context_that_is_not_there_is_a_store_error(url, model, model_files):
    with pytest.raises(StoreError):
        get_kv(url, model, bytes(32), "raw", model_files.profile)
