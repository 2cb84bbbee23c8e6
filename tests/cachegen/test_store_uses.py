"""Whoever reads a context's manifest records its use, so that eviction knows which contexts are cold."""

import asyncio
import re
import time
import urllib.request

import pytest
from storage_server import running_server
from store_contexts import make_context, publish
from store_servers import running_redis

from cachegen import HttpSource, StoreSource
from cachegen.manifest import chunk_name, manifest_name, tokens_name, used_name
from cachegen.stores import FileStore, UseRecorder, open_store, uses
from cachegen.stores.eviction import evict
from cachegen.stores.memory_store import MemoryStore


def used_s(store, manifest):
    [entry] = store.entries(used_name(manifest.context_key))
    return entry.modified_s


def fetch(source, name):
    async def run():
        data = await source.fetch(name, 1 << 20, lambda: None)
        await source.close()
        return data

    return asyncio.run(run())


def await_use(store, manifest, after_s):
    deadline_s = time.monotonic() + 30
    while used_s(store, manifest) <= after_s:
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def evict_one(store):
    """Drop one object; the context that has lost it."""
    before = set(store.names("chunks/"))
    evict(store, sum(entry.size_bytes for entry in store.entries()) - 1)
    [gone] = before - set(store.names("chunks/"))
    return gone


def own_chunk(manifest):
    """The finest of the chunks that no other context shares, which eviction drops first."""
    return chunk_name(manifest.chunks[1].key, "cachegen-0")


@pytest.fixture(params=["file", "memory", "redis"])
def url(request, tmp_path):
    if request.param == "redis":
        with running_redis(tmp_path) as server:
            yield server.url
    else:
        yield {"file": f"file://{tmp_path}/store", "memory": f"memory://uses-{tmp_path.name}"}[request.param]


def test_eviction_spares_what_was_read_from_the_store_last(url):
    store = open_store(url)
    first, second = publish(store, 100), publish(store, 200)
    published_s = used_s(store, first)
    time.sleep(0.02)

    fetch(StoreSource(open_store(url)), manifest_name(first.context_key))
    await_use(store, first, published_s)

    assert evict_one(store) == own_chunk(second)


def metric(server, name):
    with urllib.request.urlopen(f"{server.url}/metrics") as answer:
        return int(re.search(rf"^cachegen_{name} (\d+)$", answer.read().decode(), re.MULTILINE)[1])


def await_metric(server, name, value):
    deadline_s = time.monotonic() + 30
    while metric(server, name) < value:
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def test_eviction_spares_what_was_read_from_the_server_last(tmp_path):
    store = FileStore(tmp_path)
    first, second = publish(store, 100), publish(store, 200)
    published_s = used_s(store, first)
    time.sleep(0.02)
    with running_server(tmp_path) as server:
        for name in (tokens_name(second.context_key), own_chunk(second)):
            fetch(HttpSource(server.url), name)
        request = urllib.request.Request(f"{server.url}/v1/objects/{manifest_name(second.context_key)}", method="HEAD")
        urllib.request.urlopen(request).close()
        for _ in range(3):
            fetch(HttpSource(server.url), manifest_name(first.context_key))
        await_use(store, first, published_s)
        await_metric(server, "recorded_uses_total", 1)
        assert metric(server, "recorded_uses_total") == 1
        assert metric(server, "unrecorded_uses_total") == 0

    assert evict_one(store) == own_chunk(second)


def test_a_server_that_cannot_write_serves_and_says_once_that_uses_are_not_recorded(tmp_path, capfd):
    store = FileStore(tmp_path)
    contexts = [make_context(first)[1] for first in (100, 200)]
    for manifest in contexts:
        store.put(manifest_name(manifest.context_key), b"a manifest")
    (tmp_path / "used").write_bytes(b"")  # nothing can be written below it, not even by root

    with running_server(tmp_path) as server:
        for manifest in contexts:
            assert fetch(HttpSource(server.url), manifest_name(manifest.context_key)) == b"a manifest"
        await_metric(server, "unrecorded_uses_total", 2)
        assert metric(server, "recorded_uses_total") == 0

    assert (
        capfd.readouterr().err.count(f"uses of contexts are not recorded, so eviction does not know them: {tmp_path}")
        == 1
    )


class TouchedStore(MemoryStore):
    """A store that remembers what was touched."""

    def __init__(self):
        super().__init__()
        self.touched = []

    def touch(self, name):
        super().touch(name)
        self.touched.append(name)


def test_uses_are_recorded_once_a_minute_for_each_context_and_of_manifests_alone(monkeypatch):
    monkeypatch.setattr(uses, "_REMEMBERED", 2)
    store, now_s = TouchedStore(), 1000.0
    recorder = UseRecorder(store, lambda: now_s)
    keys = [bytes([number]) * 32 for number in range(4)]
    for key in keys:
        recorder.note(manifest_name(key))
    for name in (manifest_name(keys[0]), tokens_name(keys[0]), "manifests/xy", "manifests/00/no-key", "manifests/"):
        recorder.note(name)
    now_s = 1059.0
    recorder.note(manifest_name(keys[0]))
    now_s = 1060.0
    recorder.note(manifest_name(keys[0]))
    recorder.close()
    recorder.note(manifest_name(keys[1]))
    recorder._thread.shutdown(wait=True)

    assert store.touched == [used_name(key) for key in [*keys, keys[0]]]
    assert (recorder.recorded, recorder.refused) == (5, 0)
    # those that are due again were forgotten
    assert list(recorder._noted_s) == keys[:1]


def test_a_use_of_a_context_in_a_folder_waits_for_no_disk(tmp_path, monkeypatch):
    store = FileStore(tmp_path)
    manifest = publish(store, 100)
    synced = []
    monkeypatch.setattr("os.fsync", synced.append)

    store.touch(used_name(manifest.context_key))

    assert synced == []
    assert store.get(used_name(manifest.context_key)) == b""
