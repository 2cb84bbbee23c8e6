"""The storage server on loopback: objects whole and by range, nothing outside the store, a clean end."""

import http.client
import json
import re
import signal
import socket
import threading

import pytest
from storage_server import running_server

from cachegen.errors import InvalidInputError, StoreUnavailableError
from cachegen.server.run import serve
from cachegen.stores import FileStore

NAME = "chunks/ab/abcd/cachegen-2"
DATA = bytes(range(256)) * 40
SECRET = b"not for the network"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("server")
    (folder / "secret").write_bytes(SECRET)
    store = FileStore(folder / "store")
    store.put(NAME, DATA)
    store.put("empty", b"")
    store.put("plain", b"the object itself")
    store.put("plain.gz", b"another object")
    (store.root / ".tmp" / "unfinished").write_bytes(SECRET)
    (store.root / "link").symlink_to(folder / "secret")
    (store.root / "linked").symlink_to(folder)
    with running_server(store.root) as running:
        yield running


@pytest.fixture
def connection(server):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    yield connection
    connection.close()


def ask(connection, method, path, headers=None, body=None):
    connection.request(method, path, body=body, headers=headers or {})
    response = connection.getresponse()
    return response, response.read()


def test_server_announces_where_it_is_and_is_well(server, connection):
    response, body = ask(connection, "GET", "/healthz")

    assert server.ready == {
        "event": "ready",
        "host": "127.0.0.1",
        "port": server.port,
        "url": f"http://127.0.0.1:{server.port}",
    }
    assert (response.status, json.loads(body)) == (200, {"status": "ok"})


def test_object_comes_whole_with_its_length_and_a_tag(connection):
    response, body = ask(connection, "GET", f"/v1/objects/{NAME}")

    assert (response.status, body) == (200, DATA)
    assert response.headers["Content-Length"] == str(len(DATA))
    assert response.headers["Accept-Ranges"] == "bytes"
    again, _ = ask(connection, "GET", f"/v1/objects/{NAME}", {"If-None-Match": response.headers["ETag"]})
    assert again.status == 304


def test_head_tells_the_length_and_sends_nothing(connection):
    response, body = ask(connection, "HEAD", f"/v1/objects/{NAME}")

    assert (response.status, response.headers["Content-Length"], body) == (200, str(len(DATA)), b"")


@pytest.mark.parametrize(
    ("asked", "start", "end"),
    [
        ("0-0", 0, 1),
        ("100-299", 100, 300),
        ("10239-", 10239, 10240),
        ("-5", 10235, 10240),
        ("10000-999999", 10000, 10240),
        ("0-", 0, 10240),
    ],
)
def test_range_comes_exactly(connection, asked, start, end):
    response, body = ask(connection, "GET", f"/v1/objects/{NAME}", {"Range": f"bytes={asked}"})

    assert (response.status, body) == (206, DATA[start:end])
    assert response.headers["Content-Range"] == f"bytes {start}-{end - 1}/{len(DATA)}"
    assert response.headers["Content-Length"] == str(end - start)


@pytest.mark.parametrize("asked", ["bytes=10240-", "bytes=99999-100000", "bytes=9-3", "bytes=x-y"])
def test_range_outside_of_the_object_is_refused(connection, asked):
    response, _ = ask(connection, "GET", f"/v1/objects/{NAME}", {"Range": asked})

    assert response.status == 416
    assert response.headers["Content-Range"] == f"bytes */{len(DATA)}"


def test_empty_object_is_an_object(connection):
    response, body = ask(connection, "GET", "/v1/objects/empty")

    assert (response.status, body) == (200, b"")


def test_client_that_accepts_gzip_gets_the_object_itself(connection):
    response, body = ask(connection, "GET", "/v1/objects/plain", {"Accept-Encoding": "gzip, br"})

    assert (response.status, body) == (200, b"the object itself")
    assert "Content-Encoding" not in response.headers


@pytest.mark.parametrize("name", ["chunks/ab/abcd/cachegen-3", "chunks/ab", "chunks", "plain/more"])
def test_missing_object_is_404(connection, name):
    response, _ = ask(connection, "GET", f"/v1/objects/{name}")

    assert response.status == 404


@pytest.mark.parametrize(
    "path",
    [
        "../secret",
        "../../secret",
        "%2e%2e/secret",
        "%2E%2E%2Fsecret",
        "..%2fsecret",
        "..%5csecret",
        "%252e%252e%252fsecret",
        "chunks/../../secret",
        "chunks/%2e%2e/%2e%2e/secret",
        "./../secret",
        ".tmp/unfinished",
        "%2etmp%2funfinished",
        "link",
        "linked/secret",
        "linked%2fsecret",
        "/etc/passwd",
        "%2fetc%2fpasswd",
        "plain%00",
        "plain%0a",
        "chunks//ab",
        "pl%C3%A4in",
        "a" * 600,
        "",
    ],
)
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_nothing_outside_the_store_is_served(connection, method, path):
    response, body = ask(connection, method, f"/v1/objects/{path}")

    assert response.status in {400, 404}
    assert SECRET not in body
    assert b"root:" not in body


@pytest.mark.parametrize("path", ["/", "/v1", "/v1/objects", "/secret", "/../secret"])
def test_nothing_else_is_served(connection, path):
    response, _ = ask(connection, "GET", path)

    assert response.status == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_there_are_no_writes(server, connection, method):
    response, _ = ask(connection, method, f"/v1/objects/{NAME}")

    assert response.status == 405


@pytest.mark.parametrize("method", ["GET", "PUT"])
def test_request_body_is_refused_unread(connection, method):
    response, _ = ask(connection, method, f"/v1/objects/{NAME}", body=b"x" * 1000)

    assert response.status == 413
    assert response.will_close


def test_one_connection_serves_requests_of_all_outcomes(connection):
    ask(connection, "GET", "/healthz")
    socket_before = connection.sock
    outcomes = [
        ask(connection, "GET", f"/v1/objects/{NAME}")[0].status,
        ask(connection, "GET", f"/v1/objects/{NAME}", {"Range": "bytes=1-2"})[0].status,
        ask(connection, "GET", f"/v1/objects/{NAME}", {"Range": "bytes=99999-"})[0].status,
        ask(connection, "HEAD", f"/v1/objects/{NAME}")[0].status,
        ask(connection, "GET", "/v1/objects/absent")[0].status,
        ask(connection, "GET", "/v1/objects/..%2fsecret")[0].status,
        ask(connection, "GET", f"/v1/objects/{NAME}")[0].status,
    ]

    assert outcomes == [200, 206, 416, 200, 404, 400, 200]
    assert connection.sock is socket_before


def test_many_clients_at_once_get_their_own_ranges(server):
    answers = {}

    def fetch(place):
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
        headers = {"Range": f"bytes={place}-{place + 2000}"}
        answers[place] = [ask(connection, "GET", f"/v1/objects/{NAME}", headers)[1] for _ in range(5)]
        connection.close()

    threads = [threading.Thread(target=fetch, args=(place,)) for place in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert answers == {place: [DATA[place : place + 2001]] * 5 for place in range(8)}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_the_server_cleanly_though_a_client_stays_connected(tmp_path, number):
    with running_server(tmp_path) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
        assert ask(connection, "GET", "/healthz")[0].status == 200

        assert server.stop(number) == 0
        assert connection.sock.recv(1) == b""
        connection.close()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", server.port), timeout=30)


def test_transfer_in_flight_is_finished_before_the_end(tmp_path):
    data = bytes(32 * 2**20)
    store = FileStore(tmp_path)
    store.put("large", data)
    with running_server(tmp_path) as server, socket.create_connection(("127.0.0.1", server.port)) as client:
        client.sendall(b"GET /v1/objects/large HTTP/1.1\r\nHost: storage\r\n\r\n")
        received = client.recv(1000)
        server.process.send_signal(signal.SIGTERM)
        while piece := client.recv(2**20):
            received += piece

        assert server.process.wait(timeout=30) == 0
    assert received.partition(b"\r\n\r\n")[2] == data


def test_address_in_use_is_refused_by_name(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

        with pytest.raises(StoreUnavailableError, match=re.escape(f"127.0.0.1:{port}")):
            serve(tmp_path, "127.0.0.1", port, print)


@pytest.mark.parametrize("port", [-1, 65536])
def test_ports_that_are_none_are_refused(tmp_path, port):
    with pytest.raises(InvalidInputError, match=f"port is {port}"):
        serve(tmp_path, "127.0.0.1", port, print)
