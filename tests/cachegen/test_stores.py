"""Names, URLs, and the store in a folder: puts that are atomic under kill, clash and full disk."""

import os
import re
import signal
import subprocess
import sys
import time
import traceback

import pytest
from storage_server import REPOSITORY

from cachegen.errors import (
    InvalidInputError,
    ObjectNotFoundError,
    StoreUnavailableError,
    UnknownNameError,
)
from cachegen.stores import FileStore, check_name, open_store


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


def test_temporary_and_foreign_files_are_no_objects(tmp_path):
    store = FileStore(tmp_path)
    store.put("a/x", b"1")
    (tmp_path / ".tmp" / "unfinished").write_bytes(b"1")
    (tmp_path / "no name.txt").write_bytes(b"1")
    (tmp_path / "link").symlink_to(tmp_path / "a" / "x")
    (tmp_path / "folder").symlink_to(tmp_path / "a")

    assert store.names() == ["a/x"]
    assert store.names("folder/") == store.names("../") == []


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

    two_days_ago_s = time.time() - 2 * 86400
    os.utime(leftovers[0], (two_days_ago_s, two_days_ago_s))
    (temporary / "young").write_bytes(b"another writer's work")
    FileStore(tmp_path)

    assert list(temporary.iterdir()) == [temporary / "young"]


@pytest.mark.parametrize("age_s", [0.0, 2 * 3600.0, -400 * 86400.0], ids=["new", "hours old", "of the future"])
def test_a_file_in_use_survives_those_who_open_the_folder_with_another_clock(tmp_path, monkeypatch, age_s):
    FileStore(tmp_path).put("a", b"1")
    in_use = tmp_path / ".tmp" / "in-use"
    in_use.write_bytes(b"another writer's work")
    now_s = time.time()
    os.utime(in_use, (now_s - age_s, now_s - age_s))

    monkeypatch.setattr("time.time", lambda: now_s + 400 * 86400.0)
    FileStore(tmp_path)

    assert list((tmp_path / ".tmp").iterdir()) == [in_use]


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


def test_stores_in_memory_are_shared_by_name():
    open_store("memory://tests").put("a", b"1")

    assert open_store("memory://tests").get("a") == b"1"
    assert open_store("memory://other").names() == []


def test_urls_that_no_store_takes_are_refused():
    for url in ("http://host", "ftp://user:secret@host"):
        with pytest.raises(
            UnknownNameError, match=r"no store for (http|ftp)://; there are file, memory, redis"
        ) as raised:
            open_store(url)
        assert "secret" not in str(raised.value)
    for url in (
        *("file://elsewhere/folder", "file://", "memory://", "memory://a b", "s3://", "s3://bucket/a//b"),
        *("s3://bucket?timeout=3", "s3://bucket/a?endpoint=localhost:80", "s3://bucket/#fragment"),
    ):
        with pytest.raises(InvalidInputError, match=re.escape(url)):
            open_store(url)
    for url in ("file://[x", "s3://[x"):
        with pytest.raises(InvalidInputError, match="no URL: Invalid IPv6 URL"):
            open_store(url)


@pytest.mark.parametrize(
    "url",
    [
        *("redis://", "redis:///0", "redis://user:secret@host:port/0", "redis://:sec/ret@host", "redis://host/secret"),
        *("redis://:secret@host?db=1", "redis://:secret@host/-1", "redis+cluster://:secret@host/1", "s3://k:secret@b"),
        *("rediss+cluster://:secret#@host", "s3://:secret@[x", "redis://:secret@[x"),
    ],
)
def test_urls_that_may_hold_a_password_are_refused_without_it(url):
    with pytest.raises(InvalidInputError, match=r"(redis|s3)\S*://") as raised:
        open_store(url)
    shown = "".join(traceback.format_exception(raised.value))
    assert "secret" not in shown.replace(f"open_store({url!r})", "")
    assert "sec/ret" not in shown


@pytest.mark.parametrize(("url", "client", "extra"), [("redis://host", "redis", "redis"), ("s3://b", "obstore", "s3")])
def test_a_client_that_is_not_installed_is_named_with_its_extra(monkeypatch, url, client, extra):
    monkeypatch.setitem(sys.modules, client, None)
    for module in ("redis_client", "redis_store", "s3_store"):
        monkeypatch.delitem(sys.modules, f"cachegen.stores.{module}", raising=False)

    with pytest.raises(InvalidInputError, match=rf"pip install cachegen\[{extra}\]"):
        open_store(url)


def test_stores_that_are_not_used_load_no_client():
    program = "import sys, cachegen.stores; print([m for m in ('redis', 'obstore', 'torch') if m in sys.modules])"
    with run_python(program) as process:
        assert process.stdout.read() == "[]\n"
