"""What every store does, tried on each: folder, memory, Redis, a Redis cluster, S3."""

import itertools
import secrets
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, suppress

import pytest
from storage_server import REPOSITORY
from store_contexts import check_store, publish
from store_servers import CREDENTIALS, environment, running_redis, running_redis_cluster, running_s3

from cachegen.errors import InvalidInputError, ObjectNotFoundError, StoreUnavailableError
from cachegen.stores import garbage, open_store
from cachegen.stores.eviction import evict
from cachegen.stores.garbage import collect_garbage

NAME = "chunks/ab/abcd/cachegen-2"
DATA = bytes(range(256)) * 4
OBJECTS = {NAME: DATA, "chunks/ab/abcd/raw": b"raw", "empty": b"", "tokens/ab/abcd": b"tokens"}
# more than a part of Redis and than a part of an S3 upload, and no multiple of either
LARGE_BYTES = 64 * 2**20 + 3


# those that processes can share, and the one that belongs to its process
SHARED = ["file", "redis", "redis+cluster", "s3"]
KINDS = [*SHARED, "memory"]


@pytest.fixture(scope="module", params=KINDS)
def new_url(request, tmp_path_factory):
    """Makes the URL of an empty store of one kind."""
    folder = tmp_path_factory.mktemp("store")
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        for name, value in CREDENTIALS.items():
            patch.setenv(name, value)
        match request.param:
            case "file":
                yield lambda: f"file://{folder}/{secrets.token_hex(8)}"
            case "memory":
                yield lambda: f"memory://{secrets.token_hex(8)}"
            case "redis":
                server = stack.enter_context(running_redis(folder))
                yield lambda: emptied(server.url, [server])
            case "redis+cluster":
                servers = stack.enter_context(running_redis_cluster(folder))
                yield lambda: emptied(f"redis+cluster://127.0.0.1:{servers[0].port}", servers)
            case "s3":
                endpoint = stack.enter_context(running_s3("bucket-1"))
                yield lambda: f"s3://bucket-1/{secrets.token_hex(8)}?endpoint={endpoint}"


def emptied(url, servers):
    for server in servers:
        with server.client() as client:
            client.flushall()
    return url


@pytest.fixture
def store(new_url):
    return open_store(new_url())


@pytest.fixture
def stocked_store(store):
    """A store with OBJECTS in it."""
    for name, data in OBJECTS.items():
        store.put(name, data)
    return store


def test_objects_and_their_sizes_can_be_read_by_another_who_opens_the_store(new_url):
    url = new_url()
    for name, data in OBJECTS.items():
        open_store(url).put(name, data)

    store = open_store(url)
    for name, data in OBJECTS.items():
        assert store.get(name) == data
        assert store.size(name) == len(data)


def read(store, name, end):
    pieces = list(store.read(name, end))
    assert all(pieces)
    return b"".join(pieces)


def test_objects_are_read_in_pieces_up_to_an_end(stocked_store):
    for end in (0, 1, 1023, 1024, 1025, 2**41, 2**70):
        assert read(stocked_store, NAME, end) == DATA[:end], end
        assert read(stocked_store, "empty", end) == b""
    with pytest.raises(InvalidInputError, match="no range"):
        read(stocked_store, NAME, -1)


def test_ranges_are_those_of_a_slice(stocked_store):
    bounds = [0, 1, 10, 1023, 1024, 1025, 5000, 2**41, 2**70, None]
    for start, end in itertools.combinations_with_replacement(bounds, 2):
        assert stocked_store.get(NAME, start or 0, end) == DATA[start:end], (start, end)


def test_ranges_of_an_empty_object_are_empty(stocked_store):
    for start, end in ((0, None), (0, 0), (0, 10), (5, None), (5, 9)):
        assert stocked_store.get("empty", start, end) == b""


@pytest.mark.parametrize(("start", "end"), [(-1, None), (-5, -1), (3, 2), (0, -1)])
def test_ranges_that_are_none_are_refused(stocked_store, start, end):
    with pytest.raises(InvalidInputError, match="no range"):
        stocked_store.get(NAME, start, end)


@pytest.mark.parametrize("name", ["absent", "chunks", "chunks/ab/abcd", f"{NAME}/more"])
def test_what_is_not_there_is_not_found(stocked_store, name):
    for call in (
        lambda: stocked_store.get(name),
        lambda: stocked_store.get(name, 3, 3),
        lambda: stocked_store.get(name, 3, 5),
        lambda: read(stocked_store, name, 0),
        lambda: read(stocked_store, name, 5),
        lambda: stocked_store.size(name),
        lambda: stocked_store.delete(name),
    ):
        with pytest.raises(ObjectNotFoundError, match=name):
            call()


@pytest.mark.parametrize(
    "name", ["..", "../store/empty", "a/../empty", "/empty", ".tmp/x", "a//b", "é", "", "a{b}", "*"]
)
def test_names_that_are_none_are_refused(stocked_store, name):
    for call in (
        lambda: stocked_store.get(name),
        lambda: read(stocked_store, name, 1),
        lambda: stocked_store.size(name),
        lambda: stocked_store.put(name, b"1"),
        lambda: stocked_store.put_new(name, b"1"),
        lambda: stocked_store.delete(name),
    ):
        with pytest.raises(InvalidInputError, match="not an object name"):
            call()
    assert stocked_store.names() == sorted(OBJECTS)


def test_names_are_listed_by_prefix_in_order(store):
    assert store.names() == []
    for name in ("b", "a/y", "ab", "a/x", "a/b/c"):
        store.put(name, b"1")

    assert store.names() == ["a/b/c", "a/x", "a/y", "ab", "b"]
    assert store.names("a") == ["a/b/c", "a/x", "a/y", "ab"]
    assert store.names("a/") == ["a/b/c", "a/x", "a/y"]
    assert store.names("a/b") == ["a/b/c"]
    for prefix in ("../", "c", "a/x/", "a//", "*", "[ab]", "?", ".", "a\\"):
        assert store.names(prefix) == [], prefix


def test_thousands_of_names_are_listed_once_each(store):
    names = [f"chunks/{index % 7}/{index}" for index in range(1100)]
    for name in names:
        store.put(name, b"")

    assert store.names("chunks/") == sorted(names)
    assert [entry.name for entry in store.entries("chunks/3/")] == sorted(names[3::7])


def test_entries_say_size_and_order_of_puts(store):
    store.put("a/first", b"12345")
    [first] = store.entries("a/")
    second = first
    while second.modified_s == first.modified_s:  # a store's clock may tick in seconds
        store.put("a/second", b"")
        first, second = store.entries("a/")

    assert (first.name, first.size_bytes) == ("a/first", 5)
    assert (second.name, second.size_bytes) == ("a/second", 0)
    assert second.modified_s > first.modified_s
    store.put("a/first", b"1")
    again = store.entries("a/first")[0]
    assert (again.size_bytes, again.modified_s >= second.modified_s) == (1, True)


def test_touching_makes_an_empty_object_and_renews_its_time(store):
    store.touch("used/a")
    [first] = again = store.entries()
    while again[0].modified_s == first.modified_s:  # a store's clock may tick in seconds
        store.touch("used/a")
        again = store.entries()

    assert (first.name, first.size_bytes, len(again)) == ("used/a", 0, 1)
    assert again[0].modified_s > first.modified_s
    with pytest.raises(InvalidInputError, match="not an object name"):
        store.touch("../a")


def test_put_replaces_and_delete_removes(store):
    store.put("a", b"old" * 9_000_000)
    store.put("a", b"newer")
    assert store.get("a") == b"newer"
    store.put("a", b"")
    assert store.get("a") == b""

    store.delete("a")

    assert store.names() == []
    with pytest.raises(ObjectNotFoundError):
        store.get("a")
    with pytest.raises(ObjectNotFoundError):
        store.delete("a")


def test_put_new_never_replaces(store):
    assert store.put_new("a/b", b"first")
    assert not store.put_new("a/b", b"second")
    assert store.get("a/b") == b"first"

    store.delete("a/b")

    assert store.put_new("a/b", b"")
    assert not store.put_new("a/b", b"third")
    assert store.get("a/b") == b""


def test_of_many_who_put_a_new_object_at_once_one_succeeds(store):
    for attempt in range(5):
        outcomes = in_threads(8, lambda index, name=f"new/{attempt}": (store.put_new(name, b"%d" % index), index))
        [winner] = [index for was_put, index in outcomes if was_put]
        assert store.get(f"new/{attempt}") == b"%d" % winner


def in_threads(number, call):
    """Results of a call in threads that begin together."""
    results, together = [], threading.Barrier(number)

    def run(index):
        together.wait()
        results.append(call(index))

    threads = [threading.Thread(target=run, args=(index,)) for index in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == number
    return results


def test_large_objects_come_back_whole_and_by_range_across_parts(store):
    data = secrets.token_bytes(2**20) * 64 + b"end"
    assert len(data) == LARGE_BYTES
    store.put("large", data)

    assert store.size("large") == LARGE_BYTES
    assert store.get("large") == data
    part = 8 * 2**20
    for start, end in ((part - 1, part + 1), (part, 2 * part), (5, 3 * part + 5), (LARGE_BYTES - 2, None), (0, part)):
        assert store.get("large", start, end) == data[start:end]
    assert store.get("large", LARGE_BYTES) == b""
    assert read(store, "large", LARGE_BYTES + 1) == data
    assert read(store, "large", part + 1) == data[: part + 1]
    store.delete("large")


OVERWRITTEN_BYTES = 9 * 2**20


def test_readers_of_an_object_that_is_replaced_see_the_old_one_or_the_new_one(new_url):
    url = new_url()
    whole = {letter * OVERWRITTEN_BYTES for letter in (b"A", b"B")}
    open_store(url).put("a", b"A" * OVERWRITTEN_BYTES)
    done = threading.Event()

    def read_often(_):
        store, seen = open_store(url), []
        while not done.is_set() or not seen:
            data = store.get("a")
            with suppress(StoreUnavailableError):  # replaced between two pieces
                seen.append(read(store, "a", OVERWRITTEN_BYTES) in whole)
            seen.append(data in whole and len(store.get("a", OVERWRITTEN_BYTES - 5)) == 5)
        return all(seen)

    def write(index):
        if index:
            return read_often(index)
        store = open_store(url)
        try:
            for letter in b"BABABABA":
                store.put("a", bytes([letter]) * OVERWRITTEN_BYTES)
        finally:
            done.set()
        return True

    assert all(in_threads(3, write))


WRITE_OFTEN = """
import sys
from cachegen.stores import garbage, open_store
from cachegen.stores.eviction import evict
from cachegen.stores.garbage import collect_garbage
store = open_store(sys.argv[1])
for _ in range(10):
    store.put("deep/er/a", sys.argv[2].encode() * 300_000)
    store.put("deep/er/" + sys.argv[2], b"own")
"""


@pytest.mark.parametrize("new_url", SHARED, indirect=True)
def test_two_writing_processes_never_show_a_mixture(new_url):
    url = new_url()
    store = open_store(url)
    command = [sys.executable, "-c", WRITE_OFTEN, url]
    whole = {b"A" * 300_000, b"B" * 300_000}
    writers = [subprocess.Popen([*command, each], cwd=REPOSITORY, env=environment()) for each in "AB"]
    while any(writer.poll() is None for writer in writers):
        if store.names("deep/er/a"):
            assert store.get("deep/er/a") in whole
        time.sleep(0.01)  # leaves the writers their share of the machine

    assert [writer.returncode for writer in writers] == [0, 0]
    assert store.get("deep/er/a") in whole
    assert store.names() == ["deep/er/A", "deep/er/B", "deep/er/a"]


def test_eviction_keeps_manifests_true_and_ends_with_an_empty_store(store):
    for first in (100, 200):
        publish(store, first)

    done = evict(store, 40_000)
    assert sum(entry.size_bytes for entry in store.entries()) == done.after_bytes <= 40_000
    assert len(check_store(store)) == 2

    assert evict(store, 0).after_bytes == 0
    assert store.names() == []


def test_collection_removes_what_is_old_by_the_stores_own_clock_and_unlisted(store, monkeypatch):
    monkeypatch.setattr(garbage, "SHORTEST_AGE_S", 0.0)
    manifest = publish(store, 100)
    store.put("chunks/aa/old", b"old")
    [old] = store.entries("chunks/aa/old")
    young = old
    while young.modified_s < old.modified_s + 2.5:
        time.sleep(0.1)
        store.put("chunks/aa/young", b"young")
        [young] = store.entries("chunks/aa/young")

    assert collect_garbage(store, 3600.0).removed_objects == 0
    assert collect_garbage(store, 2.0).removed_objects == 1
    assert "chunks/aa/young" in store.names()
    store.delete("chunks/aa/young")
    assert check_store(store) == [manifest]


PUBLISH = """
import sys
sys.path.insert(0, "tests/cachegen")
from store_contexts import publish
from cachegen.stores import open_store
for attempt in range(4):
    for first in map(int, sys.argv[2:]):
        publish(open_store(sys.argv[1]), first + 1000 * attempt)
"""


@pytest.mark.parametrize("new_url", SHARED, indirect=True)
def test_two_processes_that_publish_one_context_and_overlapping_ones_leave_all_whole_and_nothing_over(new_url):
    url = new_url()
    command = [sys.executable, "-c", PUBLISH, url]
    writers = [
        subprocess.Popen([*command, *firsts], cwd=REPOSITORY, env=environment())
        for firsts in (("100", "200"), ("100", "300"))
    ]
    store = open_store(url)
    while any(writer.poll() is None for writer in writers):
        evict(store, 10**9)  # a sweep that finds nothing to do, among them
        time.sleep(0.01)

    assert [writer.returncode for writer in writers] == [0, 0]
    assert len(check_store(store)) == 12
