"""Contexts of made-up bytes, for tests of what a store does with them."""

from cachegen.chunking import chunk_keys
from cachegen.manifest import Manifest, ManifestChunk, chunk_name, unpack_manifest
from cachegen.stores import publish_context
from cachegen.stores.inventory import names_of

MODEL, PROFILE = bytes(16), bytes(32)
# finest first
SIZES_BYTES = {"cachegen-0": 9000, "cachegen-1": 5000, "cachegen-2": 2000}


def make_context(first, last=20, sizes_bytes=SIZES_BYTES):
    """Tokens, the manifest of their chunks of ten tokens, and the objects that it lists."""
    token_ids = [*range(10), *range(first, first + last)]
    keys = chunk_keys(token_ids, 10, MODEL, PROFILE)
    chunks = tuple(
        ManifestChunk(key, 10 * index, min(10, len(token_ids) - 10 * index), sizes_bytes)
        for index, key in enumerate(keys)
    )
    manifest = Manifest(keys[-1], MODEL, PROFILE, len(token_ids), 10, 2, 2, 8, "float16", chunks)
    return token_ids, manifest, [(key, name, key[:1] * size) for key in keys for name, size in sizes_bytes.items()]


def publish(store, first, last=20):
    """Publish a context whose first chunk all these contexts share; return its manifest."""
    token_ids, manifest, objects = make_context(first, last)
    return publish_context(store, manifest, token_ids, objects).manifest


def check_store(store):
    """All that a manifest lists is there, in its size, and nothing else is; returns the manifests."""
    manifests = [unpack_manifest(store.get(name)) for name in store.names("manifests/")]
    listed = set().union(*map(names_of, manifests))
    assert set(store.names()) == listed
    for manifest in manifests:
        for chunk in manifest.chunks:
            for encoding, size_bytes in chunk.encodings.items():
                assert store.size(chunk_name(chunk.key, encoding)) == size_bytes
    return manifests
