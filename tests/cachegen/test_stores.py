"""Stores: what each of them does, and puts that are atomic under kill, clash and full disk."""

import itertools
import os
import re
import signal
import subprocess
import sys
import time

import pytest
from storage_server import REPOSITORY

from cachegen.errors import (
    InvalidInputError,
    ObjectNotFoundError,
    StoreUnavailableError,
    UnknownNameError,
)
from cachegen.stores import STORES, FileStore, check_name, open_store

NAME = "chunks/ab/abcd/cachegen-2"
DATA = bytes(range(256)) * 4
OBJECTS = {NAME: DATA, "chunks/ab/abcd/raw": b"raw", "empty": b"", "tokens/ab/abcd": b"tokens"}


@pytest.fixture(scope="module")
def stocked_root(tmp_path_factory):
    root = tmp_path_factory.mktemp("stores") / "store"
    store = FileStore(root)
    for name, data in OBJECTS.items():
        store.put(name, data)
    return root


@pytest.fixture
def stocked_store(stocked_root):
    """A store with OBJECTS in it, opened by its URL."""
    return open_store(f"file://{stocked_root}")


# What every store does.


@pytest.mark.parametrize("name", OBJECTS)
def test_objects_and_their_sizes_can_be_read(stocked_store, name):
    assert stocked_store.get(name) == OBJECTS[name]
    assert stocked_store.size(name) == len(OBJECTS[name])


@pytest.mark.parametrize(
    ("start", "end"),
    list(itertools.combinations_with_replacement([0, 1, 10, 1023, 1024, 1025, 5000, 2**41, 2**70, None], 2)),
    ids=str,
)
def test_ranges_are_those_of_a_slice(stocked_store, start, end):
    assert stocked_store.get(NAME, start or 0, end) == DATA[start:end]


def test_range_of_an_empty_object_is_empty(stocked_store):
    assert stocked_store.get("empty", 0, 10) == b""


@pytest.mark.parametrize(("start", "end"), [(-1, None), (-5, -1), (3, 2), (0, -1)])
def test_ranges_that_are_none_are_refused(stocked_store, start, end):
    with pytest.raises(InvalidInputError, match="no range"):
        stocked_store.get(NAME, start, end)


@pytest.mark.parametrize("name", ["absent", "chunks", "chunks/ab/abcd", f"{NAME}/more"])
def test_what_is_not_there_is_not_found(stocked_store, name):
    with pytest.raises(ObjectNotFoundError, match=name):
        stocked_store.get(name)
    with pytest.raises(ObjectNotFoundError, match=name):
        stocked_store.get(name, 3, 3)
    with pytest.raises(ObjectNotFoundError, match=name):
        stocked_store.size(name)


@pytest.mark.parametrize("name", ["..", "../store/empty", "a/../empty", "/empty", ".tmp/x", "a//b", "é", ""])
def test_names_that_are_none_are_refused(stocked_store, name):
    for call in (stocked_store.get, stocked_store.size):
        with pytest.raises(InvalidInputError, match="not an object name"):
            call(name)


def test_names_end_where_they_seem_to():
    check_name("A-b_c.9/" + "x" * 128)
    for name in ("empty\n", "empty\0", "empty/", " empty", "a b", "a\\b", "a:b", "x" * 129, "x/" * 256 + "x"):
        with pytest.raises(InvalidInputError, match="not an object name"):
            check_name(name)


# The store in a folder.


def test_folder_is_made_by_the_first_put_only(tmp_path):
    store = FileStore(tmp_path / "new" / "store")
    assert store.names() == []
    assert list(tmp_path.iterdir()) == []

    store.put("a/b", b"1")

    assert FileStore(tmp_path / "new" / "store").get("a/b") == b"1"


def test_names_are_listed_by_prefix_without_temporary_or_foreign_files(tmp_path):
    store = FileStore(tmp_path)
    for name in ("a/x", "a/y", "ab", "b"):
        store.put(name, b"1")
    (tmp_path / ".tmp" / "unfinished").write_bytes(b"1")
    (tmp_path / "no name.txt").write_bytes(b"1")
    (tmp_path / "link").symlink_to(tmp_path / "b")

    assert store.names() == ["a/x", "a/y", "ab", "b"]
    assert store.names("a") == ["a/x", "a/y", "ab"]
    assert store.names("a/") == ["a/x", "a/y"]
    assert store.names("../") == []


def test_put_replaces_and_delete_removes(tmp_path):
    store = FileStore(tmp_path)
    store.put("a", b"old")
    store.put("a", b"newer")
    assert store.get("a") == b"newer"

    store.delete("a")

    assert store.names() == []
    with pytest.raises(ObjectNotFoundError):
        store.delete("a")


def test_links_do_not_lead_out_of_the_store(tmp_path):
    (tmp_path / "secret").write_bytes(b"secret")
    store = FileStore(tmp_path / "store")
    store.put("a/b", b"1")
    (store.root / "link").symlink_to(tmp_path / "secret")
    (store.root / "folder").symlink_to(tmp_path)
    (store.root / "loop").symlink_to(store.root / "loop")

    for name in ("link", "folder/secret", "loop"):
        with pytest.raises(ObjectNotFoundError):
            store.get(name)
        with pytest.raises(ObjectNotFoundError):
            store.delete(name)
    assert (tmp_path / "secret").exists()


def test_puts_do_not_follow_links_out_of_the_store(tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    store = FileStore(tmp_path / "store")
    store.put("a", b"a")
    (store.root / "link").symlink_to(outside)

    for name in ("link/b", "link/folder/b"):
        with pytest.raises(StoreUnavailableError, match=f"{name}: lies behind a symbolic link"):
            store.put(name, b"b")
    assert list(outside.iterdir()) == []


def test_store_below_a_linked_folder_works(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")

    FileStore(tmp_path / "link").put("a", b"1")

    assert FileStore(tmp_path / "link").get("a") == b"1"


def test_objects_may_be_read_by_whom_the_umask_allows(tmp_path):
    before = os.umask(0o022)
    try:
        FileStore(tmp_path).put("a", b"1")
    finally:
        os.umask(before)

    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("name", ["a", "a/b/c"], ids=["a folder stands there", "a file stands in the way"])
def test_refused_write_surfaces_with_its_path_and_leaves_nothing(tmp_path, name):
    store = FileStore(tmp_path)
    store.put("a/b", b"1")

    with pytest.raises(StoreUnavailableError, match=re.escape(str(tmp_path / name))):
        store.put(name, b"2")

    assert store.names() == ["a/b"]
    assert list((tmp_path / ".tmp").iterdir()) == []


def run_python(code, *arguments):
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True
    )


FULL_DISK = """
import resource, sys
from cachegen.errors import StoreUnavailableError
from cachegen.stores import FileStore
store = FileStore(sys.argv[1])
store.put("a", b"old")
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    store.put("a", bytes(5000))
except StoreUnavailableError as error:
    print(error)
"""


def test_write_that_runs_out_of_room_surfaces_and_keeps_the_old_object(tmp_path):
    with run_python(FULL_DISK, tmp_path) as writer:
        output = writer.stdout.read()

    assert output == f"{tmp_path / 'a'}: File too large\n"
    assert FileStore(tmp_path).get("a") == b"old"
    assert list((tmp_path / ".tmp").iterdir()) == []


WRITE_FOREVER = """
import itertools, sys
from cachegen.stores import FileStore
store = FileStore(sys.argv[1])
for data in itertools.cycle([b"A" * int(sys.argv[2]), b"B" * int(sys.argv[2])]):
    store.put("a", data)
"""


def test_writer_killed_in_mid_put_leaves_a_whole_object_and_a_file_that_is_collected(tmp_path):
    size_bytes = 16 * 2**20
    temporary = tmp_path / ".tmp"
    leftovers = []
    for _ in range(20):
        with run_python(WRITE_FOREVER, tmp_path, size_bytes) as writer:
            while not ((tmp_path / "a").exists() and any(temporary.iterdir())):
                assert writer.poll() is None
            writer.send_signal(signal.SIGKILL)
        assert FileStore(tmp_path).get("a") in {b"A" * size_bytes, b"B" * size_bytes}
        assert FileStore(tmp_path).names() == ["a"]
        leftovers = list(temporary.iterdir())
        if leftovers:
            break
    assert leftovers

    two_hours_ago_s = time.time() - 7200
    os.utime(leftovers[0], (two_hours_ago_s, two_hours_ago_s))
    (temporary / "young").write_bytes(b"another writer's work")
    FileStore(tmp_path)

    assert list(temporary.iterdir()) == [temporary / "young"]


WRITE_OFTEN = """
import sys
from cachegen.stores import FileStore
store = FileStore(sys.argv[1])
for _ in range(40):
    store.put("deep/er/a", sys.argv[2].encode() * 300_000)
"""


def test_two_writers_of_one_object_never_show_a_mixture(tmp_path):
    store = FileStore(tmp_path)
    whole = {b"A" * 300_000, b"B" * 300_000}
    with run_python(WRITE_OFTEN, tmp_path, "A") as first, run_python(WRITE_OFTEN, tmp_path, "B") as second:
        while first.poll() is None or second.poll() is None:
            if store.names("deep/er/a"):
                assert store.get("deep/er/a") in whole

    assert (first.returncode, second.returncode) == (0, 0)
    assert store.get("deep/er/a") in whole
    assert list((tmp_path / ".tmp").iterdir()) == []


# Stores by URL.


def test_plain_paths_and_file_urls_open_folders(tmp_path):
    folder = tmp_path / "with space"

    assert open_store(str(folder)).root == folder
    assert open_store(f"file://{tmp_path}/with%20space").root == folder
    assert open_store(f"file://localhost{tmp_path}").root == tmp_path


def test_urls_that_no_store_takes_are_refused():
    assert sorted(STORES) == ["file"]
    for url in ("s3://bucket/prefix", "http://host"):
        with pytest.raises(UnknownNameError, match=f"{url}: no store for .*; there are file"):
            open_store(url)
    for url in ("file://elsewhere/folder", "file://"):
        with pytest.raises(InvalidInputError, match=re.escape(url)):
            open_store(url)
