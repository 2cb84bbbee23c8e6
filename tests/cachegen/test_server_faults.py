"""A disk in trouble: the server says so, counts it and lives on."""

import asyncio
import errno
import http.client
import json
import os
import re
import socket
import threading

import pytest
from storage_server import running_server

from cachegen import HttpSource, StoreUnavailableError
from cachegen.server import objects
from cachegen.server.options import ServerOptions
from cachegen.server.run import serving
from cachegen.stores import FileStore


def ask(port, path):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", path)
    response = connection.getresponse()
    body = response.read().decode()
    connection.close()
    return response.status, body


def metric(port, name):
    return float(re.search(rf"^cachegen_{re.escape(name)} (\S+)$", ask(port, "/metrics")[1], re.MULTILINE)[1])


def ask_in_process(root, *paths, finally_do=lambda: None):
    """Ask a server in this process, whose system calls a test can break."""

    async def run():
        async with serving(root, "127.0.0.1", 0, ServerOptions()) as ready:
            answers = [await asyncio.to_thread(ask, ready["port"], path) for path in paths]
            try:
                return answers, await asyncio.to_thread(metric, ready["port"], "disk_errors_total")
            finally:
                finally_do()

    return asyncio.run(run())


@pytest.fixture
def root(tmp_path):
    store = FileStore(tmp_path / "store")
    store.put("good", b"the object")
    store.put("bad", b"another")
    return store.root


@pytest.mark.parametrize("number", [errno.EIO, errno.EACCES, errno.ESTALE, errno.EMFILE])
def test_a_file_that_the_system_does_not_open_is_503_with_the_reason_alone(root, monkeypatch, number):
    # nothing here can make a real disk fail without a device of its own
    whole = os.open

    def broken(path, *args, **kwargs):
        if str(path).endswith("/bad"):
            raise OSError(number, os.strerror(number), str(path))
        return whole(path, *args, **kwargs)

    monkeypatch.setattr(os, "open", broken)
    answers, disk_errors = ask_in_process(root, "/v1/objects/bad", "/v1/objects/good")

    assert answers == [(503, f"the store's disk fails: {os.strerror(number)}\n"), (200, "the object")]
    assert disk_errors == 1


def test_a_disk_that_does_not_answer_is_503(root, monkeypatch):
    gate, whole = threading.Event(), FileStore.path

    def hang(store, name):
        gate.wait(timeout=60)
        return whole(store, name)

    monkeypatch.setattr(objects, "_DISK_S", 0.2)
    monkeypatch.setattr(FileStore, "path", hang)
    answers, disk_errors = ask_in_process(root, "/v1/objects/good", finally_do=gate.set)

    assert answers == [(503, "the store's disk fails: no answer\n")]
    assert disk_errors == 1


def test_a_link_that_takes_a_files_place_after_the_check_is_not_followed(root, tmp_path, monkeypatch):
    (tmp_path / "secret").write_text("secret", encoding="utf-8")
    (root / "link").symlink_to(tmp_path / "secret")
    os.mkfifo(root / "pipe")
    monkeypatch.setattr(FileStore, "path", lambda self, name: self.root / name)
    answers, _ = ask_in_process(root, "/v1/objects/link", "/v1/objects/pipe")

    assert [status for status, _ in answers] == [404, 404]
    assert "secret" not in str(answers)


def test_a_file_that_shrinks_on_the_way_breaks_the_transfer_and_not_the_server(root):
    store = FileStore(root)
    store.put("large", bytes(64 * 2**20))
    with running_server(root) as server:
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as client:
            client.sendall(b"GET /v1/objects/large HTTP/1.1\r\nHost: storage\r\n\r\n")
            received = len(client.recv(1000))
            os.truncate(root / "large", 1000)
            try:
                while piece := client.recv(1 << 20):
                    received += len(piece)
            except ConnectionResetError:
                pass
        assert received < 64 * 2**20
        assert ask(server.port, "/v1/objects/good") == (200, "the object")
        assert metric(server.port, "disk_errors_total") == 1


def test_a_source_sees_a_failing_disk_as_an_unavailable_store(root, monkeypatch):
    monkeypatch.setattr(objects, "_open_object", _fail)

    async def run():
        async with serving(root, "127.0.0.1", 0, ServerOptions()) as ready:
            source = HttpSource(ready["url"])
            try:
                await source.fetch("good", 100, lambda: None)
            finally:
                await source.close()

    with pytest.raises(StoreUnavailableError, match="status 503"):
        asyncio.run(run())


def _fail(*_):
    raise StoreUnavailableError("no")


def test_bodies_go_from_the_disk_to_the_network_by_the_system_alone(root, monkeypatch):
    whole, sent = os.sendfile, []

    def noted(*args):
        sent.append(whole(*args))
        return sent[-1]

    FileStore(root).put("large", bytes(3 * 2**20))
    monkeypatch.setattr(os, "sendfile", noted)
    answers, _ = ask_in_process(root, "/v1/objects/large")

    assert sum(sent) == len(answers[0][1]) == 3 * 2**20


def test_readiness_follows_the_folder(root, tmp_path):
    with running_server(root) as server:
        assert ask(server.port, "/readyz") == (200, '{"status": "ok"}')
        root.rename(tmp_path / "away")
        status, body = ask(server.port, "/readyz")
        assert (status, json.loads(body)["reason"]) == (503, "No such file or directory")
        assert ask(server.port, "/healthz")[0] == 200
        assert ask(server.port, "/v1/objects/good")[0] == 404
        (tmp_path / "away").rename(root)
        assert ask(server.port, "/readyz")[0] == 200


def test_metrics_are_what_happened_in_prometheus_own_format(root):
    with running_server(root) as server:
        for path in ("/v1/objects/good", "/v1/objects/good", "/v1/objects/absent", "/v1/objects/..%2fx"):
            ask(server.port, path)
        text = ask(server.port, "/metrics")[1]

    samples = dict(re.findall(r'^(cachegen_\w+(?:\{\w+="[^"]+"\})?) ([0-9.]+)$', text, re.MULTILINE))
    comments = re.findall(r"^# (?:HELP|TYPE) (cachegen_\w+) ", text, re.MULTILINE)
    assert len(samples) + len(comments) == len(text.splitlines())
    assert samples['cachegen_requests_total{status="200"}'] == "2"
    assert samples['cachegen_requests_total{status="404"}'] == "1"
    assert samples['cachegen_requests_total{status="400"}'] == "1"
    assert samples["cachegen_sent_bytes_total"] == str(2 * len("the object"))
    assert samples["cachegen_requests_in_flight"] == "1"
    assert samples["cachegen_request_seconds_count"] == "4"
    buckets = [int(value) for name, value in samples.items() if name.startswith("cachegen_request_seconds_bucket")]
    assert buckets == sorted(buckets)
    assert buckets[-1] == 4
