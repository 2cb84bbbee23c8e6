"""Whatever a server sends, a fetch ends with the object or with one of the three errors, in bounded memory."""

import asyncio
import gzip
import random

import pytest
from raw_server import raw_server, says

from cachegen import HttpSource, ObjectNotFoundError, StoreUnavailableError
from cachegen.sources.progress import MinProgress

OK = b"HTTP/1.1 200 OK\r\n"
MAX_BYTES = 1000


def fetch(url, max_bytes=MAX_BYTES, **limits):
    """Fetch once; return the source with the object."""

    async def run():
        source = HttpSource(url, **{"silence_s": 0.3, "connect_s": 5.0, **limits})
        try:
            return source, await source.fetch("a/b", max_bytes, lambda: None)
        finally:
            await source.close()

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("words", "end", "message"),
    [
        (b"", "close", "Disconnected"),
        (b"", "reset", "ClientOSError"),
        (b"", "hold", r"silent for 0\.3 s"),
        (b"HTTP/1.1 2", "close", "Disconnected"),
        (b"not http at all\r\n\r\n", "close", "Bad"),
        (bytes(range(256)) * 100, "close", None),
        (b"HTTP/9.9 200 OK\r\n\r\n", "close", None),
        (b"HTTP/1.1 2000000 OK\r\n\r\n", "close", None),
        (b"HTTP/1.1 200 " + b"O" * 100_000 + b"\r\n\r\n", "close", None),
        (OK + b"a: b\r\n" * 100_000 + b"\r\n", "close", None),
        (OK + b"a: " + b"b" * 1_000_000 + b"\r\n\r\n", "close", None),
        (b"HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n", "hold", "status 500"),
        (b"HTTP/1.1 503 No\r\nContent-Length: 5\r\n\r\nagain", "hold", "status 503"),
        (b"HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n", "hold", "token"),
        (b"HTTP/1.1 301 Go\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n", "hold", "status 301"),
        (b"HTTP/1.1 206 P\r\nContent-Range: bytes 0-3/9\r\nContent-Length: 4\r\n\r\npart", "hold", "status 206"),
        (b"HTTP/1.1 204 Nothing\r\n\r\n", "hold", "status 204"),
        (b"HTTP/1.1 101 Other\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", "hold", "status 101"),
        (OK + b"Content-Length: 10\r\n\r\nshort", "close", "Payload"),
        (OK + b"Content-Length: 10\r\n\r\nshort", "reset", None),
        (OK + b"Content-Length: 10\r\n\r\nshort", "hold", r"silent for 0\.3 s"),
        (OK + b"Content-Length: -1\r\n\r\nx", "close", None),
        (OK + b"Content-Length: 1e3\r\n\r\nx", "close", None),
        (OK + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", "close", None),
        (OK + b"Content-Length: 99999999999999999999999\r\n\r\nx", "hold", None),
        (OK + b"Content-Length: 999999999999\r\n\r\n", "hold", "more than the 1000 bytes"),
        (OK + b"\r\n" + bytes(100_000), "close", "more than the 1000 bytes"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n", "close", None),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nabcdeGARBAGE", "close", None),
        (OK + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffffffff\r\nx", "hold", None),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n", "close", None),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n" + (b"400\r\n" + bytes(1024) + b"\r\n") * 9, "hold", "more than"),
        (OK + b"Content-Encoding: gzip\r\nContent-Length: 9\r\n\r\n" + bytes(9), "hold", "Content-Encoding 'gzip'"),
    ],
)
def test_a_bad_answer_ends_in_an_error_that_names_the_object(words, end, message):
    with raw_server(says(words, end)) as server, pytest.raises(StoreUnavailableError, match=message) as refusal:
        fetch(server.url)

    assert f"{server.url}/v1/objects/a/b: " in str(refusal.value)


def test_a_gzip_bomb_is_not_inflated():
    bomb = gzip.compress(bytes(50_000_000))
    words = OK + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(bomb) + bomb
    with raw_server(says(words)) as server, pytest.raises(StoreUnavailableError, match="gzip"):
        fetch(server.url, max_bytes=1 << 30)


def test_an_answer_that_goes_on_behind_its_end_is_cut_there_and_its_connection_left():
    words = OK + b"Content-Length: 3\r\n\r\nabc" + OK + b"Content-Length: 3\r\n\r\nxyz"

    async def run(url):
        source = HttpSource(url, silence_s=5.0)
        try:
            return [await source.fetch("a/b", 100, lambda: None) for _ in range(3)]
        finally:
            await source.close()

    with raw_server(says(words, "keep")) as server:
        assert asyncio.run(run(server.url)) == [b"abc"] * 3
        assert server.connections == 3


def test_404_is_an_absent_object():
    words = b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n"
    with raw_server(says(words)) as server, pytest.raises(ObjectNotFoundError, match="a/b"):
        fetch(server.url)


def test_a_fresh_connection_that_fails_is_not_tried_again():
    with raw_server(says(b"", "close")) as server:
        with pytest.raises(StoreUnavailableError):
            fetch(server.url)
        assert server.connections == 1


def test_no_server_at_all_is_an_error():
    with raw_server(says(b"")) as server:
        url = server.url
    with pytest.raises(StoreUnavailableError, match="ClientConnectorError"):
        fetch(url)


def trickle(words, connection, stopping):
    """Send one byte every 20 ms for as long as the other end listens."""
    while not stopping.wait(0.02):
        connection.sendall(words)
    return "close"


def test_a_body_that_trickles_is_given_up():
    def answer(connection, _head, _turn):
        connection.sendall(OK + b"Content-Length: 1000\r\n\r\n")
        return trickle(b"x", connection, server.stopping)

    with raw_server(answer) as server, pytest.raises(StoreUnavailableError, match=r"fewer than 500 bytes .* 0\.5 s"):
        fetch(server.url, silence_s=10.0, min_progress=MinProgress(500, 0.5))


@pytest.mark.parametrize(
    ("begin", "words"), [(OK + b"X: ", b"x"), (b"", b"HTTP/1.1 100 Continue\r\n\r\n")], ids=["a header", "1xx"]
)
def test_a_head_that_trickles_is_given_up(begin, words):
    def answer(connection, _head, _turn):
        connection.sendall(begin)
        return trickle(words, connection, server.stopping)

    with raw_server(answer) as server, pytest.raises(StoreUnavailableError, match="no whole head"):
        fetch(server.url, silence_s=0.4, connect_s=0.4)


def test_a_flood_leaves_memory_bounded():
    """More than a hundred times the object's size is on offer: what is taken of it is a piece."""

    def answer(connection, _head, _turn):
        connection.sendall(OK + b"\r\n")
        while True:
            connection.sendall(bytes(1 << 20))

    async def run(url):
        source = HttpSource(url)
        with pytest.raises(StoreUnavailableError, match="more than the 1000000 bytes"):
            await source.fetch("a/b", 1_000_000, lambda: None)
        await source.close()
        return source.received_bytes

    with raw_server(answer) as server:
        assert 1_000_000 < asyncio.run(run(server.url)) < 3_000_000


@pytest.mark.parametrize("seed", range(60))
def test_random_damage_to_a_good_answer_never_escapes(seed):
    rng = random.Random(seed)
    words = bytearray(
        OK + b'Content-Type: application/octet-stream\r\nETag: "1"\r\nContent-Length: 40\r\n\r\n' + bytes(40)
        if seed % 2
        else OK + b"Transfer-Encoding: chunked\r\nTrailer: a\r\n\r\n" + b"14\r\n" + bytes(20) + b"\r\n0\r\na: b\r\n\r\n"
    )
    for _ in range(rng.randint(1, 4)):
        place = rng.randrange(len(words))
        match rng.randrange(3):
            case 0:
                words[place] = rng.randrange(256)
            case 1:
                del words[place : place + rng.randint(1, 10)]
            case 2:
                words[place:place] = rng.randbytes(rng.randint(1, 10))
    with raw_server(says(bytes(words), "close")) as server:
        try:
            _, data = fetch(server.url)
        except (StoreUnavailableError, ObjectNotFoundError):
            return
    assert len(data) <= MAX_BYTES
