"""Publishing a context: all that its manifest lists is there before it; shared chunks are written once."""

import pytest

from cachegen.chunking import chunk_keys, pack_tokens
from cachegen.errors import MismatchError, StoreUnavailableError
from cachegen.manifest import (
    Manifest,
    ManifestChunk,
    chunk_name,
    manifest_name,
    tokens_name,
    unpack_manifest,
    used_name,
)
from cachegen.stores import FileStore, publish_context

MODEL, PROFILE = bytes(16), bytes(32)
ENCODINGS = {"cachegen-0": 90, "cachegen-1": 50}


def make_context(token_ids):
    """Return a manifest of chunks of ten tokens in ENCODINGS, and the objects it lists."""
    keys = chunk_keys(token_ids, 10, MODEL, PROFILE)
    chunks = tuple(
        ManifestChunk(key, 10 * index, min(10, len(token_ids) - 10 * index), ENCODINGS)
        for index, key in enumerate(keys)
    )
    manifest = Manifest(keys[-1], MODEL, PROFILE, len(token_ids), 10, 2, 2, 8, "float16", chunks)
    objects = [(key, name, key[:1] * size) for key in keys for name, size in ENCODINGS.items()]
    return manifest, objects


class RecordingStore(FileStore):
    """A file store that remembers what it was given, in order."""

    def __init__(self, root):
        super().__init__(root)
        self.put_names = []

    def put(self, name, data):
        super().put(name, data)
        self.put_names.append(name)

    def put_new(self, name, data):
        was_put = super().put_new(name, data)
        self.put_names += [name] * was_put
        return was_put

    def touch(self, name):
        super().touch(name)
        self.put_names.append(name)

    def put_objects(self):
        """Names in order, but for claims."""
        return [name for name in self.put_names if not name.startswith("claims/")]


def test_published_context_can_be_read_back(tmp_path):
    token_ids = list(range(25))
    manifest, objects = make_context(token_ids)

    publish_context(FileStore(tmp_path), manifest, token_ids, iter(objects))

    store = FileStore(tmp_path)
    assert unpack_manifest(store.get(manifest_name(manifest.context_key))) == manifest
    assert store.get(tokens_name(manifest.context_key)) == pack_tokens(token_ids)
    for key, encoding, data in objects:
        assert store.get(chunk_name(key, encoding)) == data


def test_chunks_are_published_first_and_the_manifest_last(tmp_path):
    store = RecordingStore(tmp_path)
    manifest, objects = make_context(list(range(25)))

    publish_context(store, manifest, list(range(25)), objects)

    assert store.put_objects() == [
        *(chunk_name(key, encoding) for key, encoding, _ in objects),
        tokens_name(manifest.context_key),
        used_name(manifest.context_key),
        manifest_name(manifest.context_key),
    ]
    # claimed before the first chunk, and again before the manifest; the claim ends with the publication
    claims = [place for place, name in enumerate(store.put_names) if name.startswith("claims/")]
    assert claims == [0, len(objects) + 1]
    assert store.names("claims/") == []


def test_contexts_with_an_equal_prefix_share_its_chunks(tmp_path):
    store = RecordingStore(tmp_path)
    short, longer = list(range(20)), list(range(27))
    publish_context(store, make_context(short)[0], short, make_context(short)[1])
    store.put_names.clear()

    manifest, objects = make_context(longer)
    written_bytes = publish_context(store, manifest, longer, objects).written_bytes

    assert store.put_objects() == [
        *(chunk_name(manifest.context_key, encoding) for encoding in ENCODINGS),
        tokens_name(manifest.context_key),
        used_name(manifest.context_key),
        manifest_name(manifest.context_key),
    ]
    assert written_bytes == 90 + 50 + 27 * 4 + store.size(manifest_name(manifest.context_key))


def test_object_of_another_size_is_written_again(tmp_path):
    store = FileStore(tmp_path)
    manifest, objects = make_context(list(range(10)))
    key, encoding, data = objects[0]
    store.put(chunk_name(key, encoding), b"half")

    publish_context(store, manifest, list(range(10)), objects)

    assert store.get(chunk_name(key, encoding)) == data


def spoil(kind, objects):
    key, encoding, data = objects[0]
    return {
        "missing": objects[1:],
        "short": [(key, encoding, data[:-1]), *objects[1:]],
        "another encoding": [(key, "raw", data), *objects],
        "another key": [(bytes(32), encoding, data), *objects],
    }[kind]


@pytest.mark.parametrize("kind", ["missing", "short", "another encoding", "another key"])
def test_objects_that_are_not_the_manifests_publish_nothing(tmp_path, kind):
    store = FileStore(tmp_path)
    manifest, objects = make_context(list(range(25)))

    with pytest.raises(MismatchError, match=r"chunks/.*the manifest lists"):
        publish_context(store, manifest, list(range(25)), spoil(kind, objects))

    assert store.names("manifests/") == []


def test_tokens_of_another_context_publish_nothing(tmp_path):
    manifest, objects = make_context(list(range(25)))

    with pytest.raises(MismatchError, match="chunk 2"):
        publish_context(FileStore(tmp_path), manifest, [*range(24), 99], objects)

    assert FileStore(tmp_path).names() == []


def test_refused_write_publishes_no_manifest(tmp_path):
    (tmp_path / "tokens").write_bytes(b"in the way")
    store = FileStore(tmp_path)
    manifest, objects = make_context(list(range(25)))

    with pytest.raises(StoreUnavailableError, match="tokens"):
        publish_context(store, manifest, list(range(25)), objects)

    assert store.names("manifests/") == []
    assert store.names("chunks/") == sorted(chunk_name(key, encoding) for key, encoding, _ in objects)
