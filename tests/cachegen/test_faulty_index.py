"""Whatever is wrong with an index: tokens that the key proves are recomputed, others are refused by name."""

import json
import random
import re
from dataclasses import replace

import pytest
from faulty_load import (
    NO_TEXT,
    check,
    flip,
    load,
    objects,
    said,
)
from faulty_server import FaultyServer
from stored_context import LADDER
from tiny_models import tiny_llama

from cachegen import (
    MismatchError,
    ProfileBuilder,
    get_kv,
    store_kv,
)
from cachegen.errors import FormatError, ObjectNotFoundError, StoreError
from cachegen.manifest import manifest_name, tokens_name


def rewritten(old, new):
    return lambda data: data.replace(old, new)


BAD_MANIFESTS = {
    "gone": (None, "no such object"),
    "of no bytes": (lambda data: b"", "manifest"),
    "cut off": (lambda data: data[: len(data) // 3], "manifest"),
    "of another profile": (rewritten(b'"profile_hash":"', b'"profile_hash":"0000'), "profile_hash|profile hash"),
    "of another model": (lambda data: data.replace(model_field(data), bytes(16).hex().encode()), "model fingerprint"),
    "of other chunks": (rewritten(b'"chunk_tokens":16', b'"chunk_tokens":14'), "num_tokens must be 14"),
}


def model_field(manifest):
    return json.loads(manifest)["model_fingerprint"].encode()


@pytest.mark.parametrize("damage", BAD_MANIFESTS)
@pytest.mark.parametrize("method", ["fixed", "meet"])
def test_with_a_bad_manifest_the_key_proves_the_tokens_and_all_is_recomputed(stored, clean, fresh, damage, method):
    change, error = BAD_MANIFESTS[damage]
    path = fresh / manifest_name(stored.manifest.context_key)
    path.unlink() if change is None else path.write_bytes(change(path.read_bytes()))

    with FaultyServer(fresh) as server:
        for token_ids in (None, list(stored.cache.token_ids)):
            loaded, events = load(stored, server.url, method, token_ids, slo_s=60.0)
            check(stored, clean, loaded)
            assert set(loaded.chunk_sources) == {"recompute"}
            assert re.search(error, said(events, "index_given_up")[0]["error"])


def test_a_flipped_bit_anywhere_in_a_manifest_leaves_the_right_tokens(stored, clean, fresh):
    path = fresh / manifest_name(stored.manifest.context_key)
    data, chance = path.read_bytes(), random.Random(4)
    with FaultyServer(fresh) as server:
        for place in chance.sample(range(len(data)), 40):
            path.write_bytes(bytes([*data[:place], data[place] ^ 1 << chance.randrange(8), *data[place + 1 :]]))
            loaded, _ = load(stored, server.url, "meet")
            check(stored, clean, loaded)


BAD_TOKENS = {
    "gone": (None, ObjectNotFoundError),
    "truncated": (lambda data: data[:3], FormatError),
    "one token short": (lambda data: data[:-4], FormatError),
    "of another context": (lambda data: bytes(len(data)), MismatchError),
    "with one bit flipped": (lambda data: bytes([data[0] ^ 1, *data[1:]]), MismatchError),
}


@pytest.mark.parametrize("damage", BAD_TOKENS)
def test_tokens_that_the_key_refutes_are_computed_on_by_nobody(stored, clean, fresh, damage):
    change, error = BAD_TOKENS[damage]
    path = fresh / tokens_name(stored.manifest.context_key)
    path.unlink() if change is None else path.write_bytes(change(path.read_bytes()))

    with FaultyServer(fresh) as server:
        with pytest.raises(error):
            load(stored, server.url, "meet")
        (fresh / manifest_name(stored.manifest.context_key)).unlink()
        with pytest.raises(ObjectNotFoundError, match=r"(manifests|tokens)/"):
            load(stored, server.url, "meet")
        loaded, _ = load(stored, server.url, "meet", list(stored.cache.token_ids))

    check(stored, clean, loaded)


def test_a_context_that_another_profile_coded_is_recomputed(stored, clean, tmp_path):
    builder = ProfileBuilder(stored.model.shape, stored.model.fingerprint)
    builder.add(stored.cache.chunk(0, 56))
    theirs = store_kv(str(tmp_path), stored.model, stored.cache, LADDER, builder.build(), 16)

    with FaultyServer(tmp_path) as server:
        loaded, events = load(replace(stored, manifest=theirs), server.url, "paper")
        check(stored, clean, loaded)
        assert "profile hash" in said(events, "index_given_up")[0]["error"]
        # without a deadline it is this very KV that is wanted
        with pytest.raises(MismatchError, match="profile hash"):
            get_kv(server.url, stored.model, theirs.context_key, "cachegen-0", stored.profile)


def test_what_cannot_be_recomputed_fails_by_name_with_its_manifest(stored, fresh):
    (fresh / manifest_name(stored.manifest.context_key)).unlink()
    with FaultyServer(fresh) as server, pytest.raises(ObjectNotFoundError, match="manifests/"):
        load(stored, server.url, "fixed", costs=NO_TEXT)


@pytest.mark.parametrize("method", ["text", "fixed", "paper", "meet"])
def test_what_cannot_be_recomputed_is_never_made_of_its_tokens(stored, fresh, method):
    chance = random.Random(method)
    for path in objects(stored, fresh, 2, ["raw", *LADDER]):
        flip(path, chance, [])
    with FaultyServer(fresh) as server, pytest.raises(StoreError, match=r"chunk [02] is not to be had .* recomputed"):
        load(stored, server.url, method, costs=NO_TEXT)


@pytest.mark.parametrize("method", ["paper", "meet"])
def test_what_cannot_be_recomputed_comes_in_the_encoding_that_is_left(stored, fresh, method):
    for path in objects(stored, fresh, 2, LADDER[:-1]):
        flip(path, random.Random(method), [])
    with FaultyServer(fresh) as server:
        loaded, _ = load(stored, server.url, method, costs=NO_TEXT)
    assert loaded.chunk_sources[2] == LADDER[-1]


def test_another_models_context_is_never_recomputed(stored):
    other = replace(stored, model=tiny_llama(seed=7))
    with FaultyServer(stored.root) as server, pytest.raises(MismatchError, match="model fingerprint"):
        load(other, server.url, "text")
