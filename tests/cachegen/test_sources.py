"""Objects over HTTP, from a server that misbehaves too."""

import asyncio
import re
from contextlib import asynccontextmanager

import pytest
from storage_server import running_server

from cachegen import (
    HttpSource,
    InvalidInputError,
    ObjectNotFoundError,
    StoreSource,
    StoreUnavailableError,
    open_source,
    open_store,
)

BODY = bytes(range(256)) * 5000


@pytest.fixture
def root(tmp_path):
    open_store(str(tmp_path)).put("a/b", BODY)
    return tmp_path


def fetch(source, name, max_bytes=1 << 24):
    first_bytes = []

    async def run():
        try:
            return await source.fetch(name, max_bytes, lambda: first_bytes.append(source.received_bytes))
        finally:
            await source.close()

    return asyncio.run(run()), first_bytes


def test_an_object_arrives_whole_over_http_and_its_bytes_are_counted(root):
    with running_server(root) as server:
        source = open_source(server.url)
        data, first_bytes = fetch(source, "a/b")

    assert isinstance(source, HttpSource)
    assert data == BODY
    assert source.received_bytes == len(BODY)
    assert first_bytes == [0]


def test_an_object_arrives_whole_out_of_a_folder(root):
    source = open_source(str(root))
    data, first_bytes = fetch(source, "a/b")

    assert isinstance(source, StoreSource)
    assert data == BODY
    assert len(first_bytes) == 1


def test_more_bytes_than_expected_are_refused_from_both(root):
    with running_server(root) as server:
        for source in (open_source(server.url), open_source(str(root))):
            with pytest.raises(StoreUnavailableError, match="more than the 100 bytes"):
                fetch(source, "a/b", max_bytes=100)


def test_an_absent_object_is_named(root):
    with running_server(root) as server:
        for source in (open_source(server.url), open_source(str(root))):
            with pytest.raises(ObjectNotFoundError, match="a/c"):
                fetch(source, "a/c")


@asynccontextmanager
async def server_that_answers(first_words):
    """A socket that sends these bytes to whoever asks, and then nothing more."""
    closing = asyncio.Event()

    async def answer(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(first_words)
        await writer.drain()
        await closing.wait()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        closing.set()
        server.close()


@pytest.mark.parametrize(
    "url",
    [
        "http://",
        "http://host:port",
        "http://host:99999",
        f"http://{'a' * 64}.example",
        "http://host/path",
        "http://user@host",
        "http://host?query",
    ],
)
def test_urls_of_no_server_are_refused(url):
    with pytest.raises(InvalidInputError, match=re.escape(url)):
        open_source(url)


@pytest.mark.parametrize(
    "first_words",
    [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly this"],
    ids=["no answer", "half a body"],
)
def test_silence_ends_in_an_error(first_words):
    async def run():
        async with server_that_answers(first_words) as url:
            source = HttpSource(url, silence_s=0.2)
            try:
                await source.fetch("a/b", 1000, lambda: None)
            finally:
                await source.close()

    with pytest.raises(StoreUnavailableError, match=r"silent for 0.2 s"):
        asyncio.run(run())


@pytest.mark.parametrize(
    ("first_words", "message"),
    [
        (b"HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n", "status 500"),
        (b"HTTP/1.1 301 Moved\r\nLocation: http://elsewhere/\r\nContent-Length: 0\r\n\r\n", "status 301"),
        (b"not http at all\r\n\r\n", "Bad"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 999999999999\r\n\r\n" + bytes(2000), "more than the 1000 bytes"),
    ],
)
def test_a_bad_answer_ends_in_an_error(first_words, message):
    async def run():
        async with server_that_answers(first_words) as url:
            source = HttpSource(url)
            try:
                await source.fetch("a/b", 1000, lambda: None)
            finally:
                await source.close()

    with pytest.raises(StoreUnavailableError, match=message):
        asyncio.run(run())


@pytest.mark.parametrize("url", ["http://", "http://host:99999", "http://host/path", f"http://{'a' * 64}.example"])
def test_urls_of_no_server_are_refused_before_a_request(url):
    with pytest.raises(InvalidInputError, match=url):
        open_source(url)
