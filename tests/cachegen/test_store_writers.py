"""Two processes that store real contexts with a common prefix at once, and chunks whose bytes differ by writer."""

import subprocess
import sys
from dataclasses import replace

import pytest
from checks import identity_of, make_chunk, profile_of
from storage_server import REPOSITORY
from store_contexts import check_store
from store_servers import running_redis
from stored_context import LADDER, store_context

from cachegen import Encoding, Manifest, ManifestChunk, decode_chunk, encode_chunk, open_store
from cachegen.chunking import chunk_keys
from cachegen.manifest import chunk_name
from cachegen.stores import publish_context
from cachegen.stores.memory_store import MemoryStore

STORE = """
import sys
sys.path[:0] = ["tests", "tests/cachegen"]
from stored_context import store_context
print("ready", flush=True)
sys.stdin.readline()
for tokens in map(int, sys.argv[2:]):
    store_context(sys.argv[1], tokens)
"""


@pytest.fixture(params=["file", "redis"])
def url(request, tmp_path):
    if request.param == "file":
        yield str(tmp_path / "store")
        return
    with running_redis(tmp_path) as server:
        yield server.url


def test_contexts_that_two_processes_store_at_once_decode_in_every_encoding(url, tmp_path):
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", STORE, url, *lengths], cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for lengths in (("56", "72"), ("56", "40"))
    ]
    for writer in writers:
        assert writer.stdout.readline() == b"ready\n"
    for writer in writers:
        writer.communicate(b"go\n")
    assert [writer.returncode for writer in writers] == [0, 0]

    store = open_store(url)
    manifests = check_store(store)
    profile = store_context(tmp_path / "elsewhere").profile
    assert sorted(manifest.num_tokens for manifest in manifests) == [40, 56, 72]
    assert len({manifest.chunks[0].key for manifest in manifests}) == 1
    for manifest in manifests:
        for chunk in manifest.chunks:
            assert {"raw", *LADDER} <= set(chunk.encodings)
            for encoding in chunk.encodings:
                decoded = decode_chunk(store.get(chunk_name(chunk.key, encoding)), profile)
                assert decoded.identity.chunk_key == chunk.key


def one_chunk(seed):
    """A context of one chunk; its bytes depend on the seed, its key does not."""
    kv = make_chunk(seed=seed)
    profile = profile_of(kv)
    token_ids = list(range(kv.shape[2]))
    identity = replace(identity_of(profile), chunk_index=0, first_token=0)
    [key] = chunk_keys(token_ids, 512, identity.model_fingerprint, profile.hash)
    data = encode_chunk(kv, Encoding("cachegen", 1), replace(identity, chunk_key=key), profile)
    chunk = ManifestChunk(key, 0, len(token_ids), {"cachegen-1": len(data)})
    shape = (len(token_ids), 512, 3, 2, 5, "bfloat16", (chunk,))
    return token_ids, Manifest(key, identity.model_fingerprint, profile.hash, *shape), data


def test_who_puts_a_chunk_second_lists_what_the_first_has_put():
    store = MemoryStore()
    token_ids, manifest, first = one_chunk(seed=0)
    _, other, second = one_chunk(seed=5)
    assert (manifest.context_key, len(first)) != (other.context_key, len(second))
    assert manifest.context_key == other.context_key

    publish_context(store, manifest, token_ids, [(manifest.context_key, "cachegen-1", first)])
    published = publish_context(store, other, token_ids, [(other.context_key, "cachegen-1", second)])

    assert published.manifest == manifest
    assert check_store(store) == [manifest]
    assert store.get(chunk_name(manifest.context_key, "cachegen-1")) == first


def test_a_damaged_chunk_is_mended():
    store = MemoryStore()
    token_ids, manifest, data = one_chunk(seed=0)
    name = chunk_name(manifest.context_key, "cachegen-1")
    store.put(name, data[:-1] + bytes([data[-1] ^ 1]))

    publish_context(store, manifest, token_ids, [(manifest.context_key, "cachegen-1", data)])

    assert store.get(name) == data
