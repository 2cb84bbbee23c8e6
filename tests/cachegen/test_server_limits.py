"""What a client can take of a server, and for how long. Each server here is a process of its own."""

import concurrent.futures
import contextlib
import re
import signal
import socket
import ssl
import time

import pytest
from certificates import write_certificate
from storage_server import running_server

from cachegen import InvalidInputError
from cachegen.server.options import ServerOptions
from cachegen.stores import FileStore

LARGE_BYTES = 64 * 2**20
GET = b"GET /v1/objects/%s HTTP/1.1\r\nHost: storage\r\n\r\n"


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    store = FileStore(tmp_path_factory.mktemp("limits"))
    store.put("small", b"the object")
    store.put("large", bytes(LARGE_BYTES))
    return store.root


@contextlib.contextmanager
def client(server, words=b"", receive_bytes=None):
    with socket.socket() as connection:
        connection.settimeout(60)
        if receive_bytes is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        connection.connect(("127.0.0.1", server.port))
        connection.sendall(words)
        yield connection


def read_all(connection):
    received = b""
    # a connection that is cut ends in a reset
    with contextlib.suppress(ConnectionResetError):
        while piece := connection.recv(1 << 20):
            received += piece
    return received


def send_until_cut(connection, words, pause_s=0.0):
    """Send on and on, reading nothing, until the server ends the connection; a test's own limit is the other end."""
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        while True:
            connection.sendall(words)
            time.sleep(pause_s)


def answer(server, name=b"small"):
    with client(server, GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n") % name) as connection:
        return read_all(connection)


def metric(server, name):
    with client(server, b"GET /metrics HTTP/1.0\r\n\r\n") as connection:
        return float(re.search(rf"^cachegen_{re.escape(name)} (\S+)$", read_all(connection).decode(), re.MULTILINE)[1])


def test_connections_beyond_the_limit_are_turned_away_at_once_and_room_is_made_again(root):
    with running_server(root, flags=("--max-connections", "2")) as server:
        with client(server, GET % b"small") as first, client(server, GET % b"small") as second:
            assert first.recv(1000).startswith(b"HTTP/1.1 200")
            assert second.recv(1000).startswith(b"HTTP/1.1 200")
            for _ in range(5):
                with client(server) as third:
                    assert read_all(third).startswith(b"HTTP/1.1 503")
        while not (received := answer(server)).startswith(b"HTTP/1.1 200"):
            assert received == b"" or received.startswith(b"HTTP/1.1 503")
        assert metric(server, "refused_connections_total") >= 5


def test_connections_that_never_speak_tls_count_too(root, tmp_path):
    certificate, key = write_certificate(tmp_path, "127.0.0.1")
    with running_server(root, tls=(certificate, key), flags=("--max-connections", "2")) as server:
        with client(server), client(server), client(server) as third:
            assert read_all(third) == b""
        context = ssl.create_default_context(cafile=certificate)
        while True:
            try:
                with client(server) as plain, context.wrap_socket(plain, server_hostname="127.0.0.1") as connection:
                    connection.sendall(GET % b"small")
                    assert connection.recv(1000).startswith(b"HTTP/1.1 200")
                    break
            except OSError:
                continue


@pytest.mark.parametrize("words", [b"", b"GET /v1/obj", GET % b"small"], ids=["none", "half a request", "one request"])
def test_a_connection_that_asks_for_nothing_is_closed(root, words):
    with running_server(root, flags=("--idle-s", "0.5")) as server, client(server, words) as connection:
        received = read_all(connection)
        assert received.startswith(b"HTTP/1.1 200") == (words == GET % b"small")


def test_a_request_that_trickles_in_is_cut_off(root):
    with running_server(root, flags=("--idle-s", "0.5")) as server, client(server, b"GET / HTTP/1.1\r\nX: ") as slow:
        send_until_cut(slow, b"x", pause_s=0.02)
        assert answer(server).endswith(b"the object")


@pytest.mark.parametrize(
    "words",
    [
        b"GET /" + b"a" * 10_000 + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nX: " + b"a" * 10_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 100 + b"\r\n",
        b"GET / HTTP/1.1\r\nX y\r\n\r\n",
        b"\x16\x03\x01garbage\r\n\r\n",
        b"GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n",
    ],
    ids=["long line", "long header", "many headers", "no header", "no HTTP", "bad length"],
)
def test_requests_that_are_none_are_refused_counted_and_kept_out_of_the_log(root, words, capfd):
    with running_server(root) as server:
        with client(server, words) as connection:
            assert read_all(connection).startswith(b"HTTP/1.0 400")
        assert metric(server, 'requests_total{status="400"}') == 1
        assert answer(server).endswith(b"the object")
    assert capfd.readouterr().err == ""


def test_a_body_is_not_read(root):
    head = b"GET /v1/objects/small HTTP/1.1\r\nHost: storage\r\nTransfer-Encoding: chunked\r\n\r\n"
    with running_server(root) as server, client(server, head) as connection:
        assert connection.recv(1000).startswith(b"HTTP/1.1 413")
        send_until_cut(connection, b"ffff\r\n" + bytes(0xFFFF) + b"\r\n")


@pytest.mark.parametrize("flag", ["--stall-s", "--request-s"])
def test_a_client_that_stops_reading_is_cut_off(root, flag):
    with running_server(root, flags=(flag, "1")) as server:
        with client(server, GET % b"large", receive_bytes=4096) as connection:
            assert connection.recv(100).startswith(b"HTTP/1.1 200")
            while metric(server, "requests_in_flight") > 1:
                # the one that asks for the count is one
                pass
            assert len(read_all(connection)) < LARGE_BYTES
        assert metric(server, "cut_transfers_total") == 1
        assert answer(server).endswith(b"the object")


def test_a_client_that_asks_on_and_on_and_reads_nothing_is_cut_off(root):
    with running_server(root, flags=("--stall-s", "1", "--request-s", "1")) as server:
        with client(server, receive_bytes=4096) as connection:
            send_until_cut(connection, GET % b"absent" * 100)
        assert answer(server).endswith(b"the object")


def test_a_slow_reader_holds_nobody_up(root):
    with running_server(root) as server, client(server, GET % b"large", receive_bytes=4096) as slow:
        slow.recv(100)
        with concurrent.futures.ThreadPoolExecutor(8) as threads:
            answers = list(threads.map(lambda _: answer(server), range(40)))
    assert all(received.endswith(b"the object") for received in answers)


def test_a_transfer_that_outlasts_the_grace_is_cut_at_the_stop(root):
    with running_server(root, flags=("--grace-s", "0.5")) as server, client(server, GET % b"large", 4096) as connection:
        connection.recv(100)

        assert server.stop(signal.SIGTERM) == 0
        assert len(read_all(connection)) < LARGE_BYTES


@pytest.mark.parametrize("name", ["max_connections", "idle_s", "stall_s", "request_s", "grace_s"])
@pytest.mark.parametrize("value", [0, -1, 1e9, float("nan")])
def test_limits_that_are_none_are_refused(name, value):
    with pytest.raises(InvalidInputError, match=name):
        ServerOptions(**{name: value})
