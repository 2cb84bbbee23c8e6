"""Several fetches at once over few connections: kept alive, cancelled one by one, found dead, told apart by tokens."""

import asyncio
import signal
import socket
import time

import pytest
from certificates import write_certificate
from raw_server import raw_server, says
from storage_server import running_server

from cachegen import HttpSource, InvalidInputError, StoreUnavailableError
from cachegen.sources.progress import MinProgress
from cachegen.stores import FileStore

OK = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n"
TOKEN = "0123456789abcdefXYZ"


def no_matter():
    pass


def use(url, steps, **options):
    """Run ``await steps(source)`` with a source that is closed afterwards."""

    async def run():
        source = HttpSource(url, **options)
        try:
            return await steps(source)
        finally:
            await source.close()

    return asyncio.run(run())


@pytest.fixture
def store(tmp_path):
    store = FileStore(tmp_path / "store")
    for number in range(12):
        store.put(f"chunks/{number}", bytes([number]) * 300_000)
    return store


def test_many_fetches_at_once_get_their_own_objects_over_as_many_connections_as_allowed(store):
    pieces = []

    async def steps(source):
        names = [f"chunks/{number}" for number in range(12)] * 2
        return await asyncio.gather(
            *(source.fetch(name, 300_000, no_matter, on_bytes=pieces.append) for name in names)
        ), source.received_bytes

    with running_server(store.root) as server:
        objects, received_bytes = use(server.url, steps, connections=3)

    assert objects == [bytes([number]) * 300_000 for number in range(12)] * 2
    assert sum(pieces) == received_bytes == 24 * 300_000
    assert len(pieces) > 24


@pytest.mark.parametrize("connections", [1, 3])
def test_connections_are_kept_and_their_number_is_held(connections):
    async def steps(source):
        for _ in range(4):
            await asyncio.gather(*(source.fetch("a", 10, no_matter) for _ in range(2 * connections)))

    with raw_server(says(OK % 2 + b"ab", "keep")) as server:
        use(server.url, steps, connections=connections)
        assert server.connections == connections
        assert len(server.heads) == 8 * connections


def test_long_objects_take_the_connection_that_has_carried_most_and_short_ones_the_others():
    used = []

    def answer(connection, head, _turn):
        name = head.split(b" ")[1].removeprefix(b"/v1/objects/").decode()
        used.append((name, connection.getpeername()))
        size = 5000 if name.startswith("chunks/") else 100
        connection.sendall(OK % size + b"x" * size)
        return "keep"

    async def steps(source):
        # the long one comes last, as it does in a load
        for _ in range(3):
            names = ("manifests/a", "tokens/a", "chunks/a")
            await asyncio.gather(*(source.fetch(name, 5000, no_matter) for name in names))

    with raw_server(answer) as server:
        use(server.url, steps)
        assert server.connections == 3

    assert len({peer for name, peer in used if name == "chunks/a"}) == 1
    assert len({peer for name, peer in used if name != "chunks/a"}) == 2


def test_a_connection_that_was_given_up_is_the_last_to_be_taken():
    used = []

    def answer(connection, head, _turn):
        used.append((head.split(b" ")[1].rsplit(b"/", 1)[1], connection.getpeername()))
        if head.split(b" ")[1].endswith(b"slow"):
            connection.sendall(OK % 9000 + b"x" * 3000)
            return "close" if connection.recv(1) == b"" else "keep"
        connection.sendall(OK % 5000 + b"x" * 5000)
        return "keep"

    async def steps(source):
        arrived = asyncio.Event()
        for _ in range(2):  # much over one connection
            await source.fetch("chunks/a", 9000, no_matter)
        slow = asyncio.ensure_future(source.fetch("chunks/slow", 9000, no_matter, on_bytes=lambda _: arrived.set()))
        await arrived.wait()
        await source.fetch("chunks/b", 9000, no_matter)
        slow.cancel()
        with pytest.raises(asyncio.CancelledError):
            await slow
        for name in ("chunks/c", "manifests/c"):
            await source.fetch(name, 9000, no_matter)

    with raw_server(answer) as server:
        use(server.url, steps)
        assert server.connections == 2

    peers = dict(used)
    assert peers[b"slow"] == peers[b"a"]
    assert peers[b"c"] == peers[b"b"] != peers[b"slow"]


def trickle(connection, _head, _turn):
    connection.sendall(OK % 300_000)
    for _ in range(300):
        connection.sendall(b"x" * 1000)
        time.sleep(0.001)
    return "keep"


async def begin_trickle(source):
    """A fetch of which five pieces have come."""
    pieces = asyncio.Queue()
    fetch = asyncio.ensure_future(source.fetch("chunks/a", 300_000, no_matter, on_bytes=pieces.put_nowait))
    for _ in range(5):
        await pieces.get()
    return fetch


def test_what_trickles_in_is_read_in_fewer_pieces_but_for_its_end():
    pieces = []
    with raw_server(trickle) as server:
        data = use(server.url, lambda source: source.fetch("chunks/a", 300_000, no_matter, on_bytes=pieces.append))

    assert data == b"x" * 300_000
    assert sum(pieces) == 300_000
    assert 1 < len(pieces) < 200


def test_a_source_that_is_closed_while_pieces_gather_says_so():
    async def steps(source):
        fetch = await begin_trickle(source)
        await source.close()
        with pytest.raises(StoreUnavailableError, match="chunks/a: "):
            await fetch

    with raw_server(trickle) as server:
        use(server.url, steps)


def test_a_connection_says_what_it_took_to_make_and_when_its_answer_should_be_whole():
    async def steps(source):
        fetch = await begin_trickle(source)
        [busy] = source._pool._busy
        ends_s, now_s = busy.ends_s, asyncio.get_running_loop().time()
        await fetch
        return busy.took_s, ends_s - now_s

    with raw_server(trickle) as server:
        took_s, left_s = use(server.url, steps)

    assert 0 < took_s < 10
    assert left_s > 0.1


def test_a_new_connection_has_carried_nothing():
    async def steps(source):
        connection = None
        for _ in range(2):
            await source.fetch("chunks/a", 5000, no_matter)
            [connection] = source._pool._idle
        return connection.carried_bytes

    # closed after each answer, so that every one comes over a connection of its own
    with raw_server(says(OK % 5000 + b"x" * 5000, "close")) as server:
        assert use(server.url, steps) == 5000
        assert server.connections == 2


def test_a_cancelled_fetch_closes_its_own_connection_alone_and_its_bytes_stay_counted():
    def answer(connection, head, _turn):
        if b"/slow" in head:
            connection.sendall(OK % 1000 + b"x" * 300)
            if connection.recv(1) == b"":
                server.closed_by_client.release()
            return "close"
        connection.sendall(OK % 5 + b"whole")
        return "keep"

    async def steps(source):
        arrived = asyncio.Event()
        slow = asyncio.ensure_future(source.fetch("slow", 1000, no_matter, on_bytes=lambda _: arrived.set()))
        await arrived.wait()
        before = await source.fetch("quick", 10, no_matter)
        slow.cancel()
        with pytest.raises(asyncio.CancelledError):
            await slow
        assert await asyncio.to_thread(server.closed_by_client.acquire, timeout=30)
        after = [await source.fetch("quick", 10, no_matter) for _ in range(3)]
        return [before, *after], source.received_bytes

    with raw_server(answer) as server:
        objects, received_bytes = use(server.url, steps, silence_s=60.0)
        assert server.connections <= 3

    assert objects == [b"whole"] * 4
    assert received_bytes == 300 + 4 * 5


def test_what_arrived_unread_is_counted_when_the_fetch_is_cancelled():
    async def steps(source):
        def hold(_num_bytes):
            # nothing is read of what comes from here on
            raise asyncio.CancelledError

        with pytest.raises(asyncio.CancelledError):
            await source.fetch("a", 1 << 20, no_matter, on_bytes=hold)
        return source.received_bytes

    with raw_server(says(OK % 300_000 + bytes(1000))) as server:
        assert use(server.url, steps) == 1000


def test_fetches_that_wait_for_their_turn_can_be_cancelled():
    async def steps(source):
        held = [asyncio.ensure_future(source.fetch("a", 10, no_matter)) for _ in range(5)]
        while not server.heads:
            await asyncio.sleep(0.01)
        for fetch in held:
            fetch.cancel()
        return await asyncio.gather(*held, return_exceptions=True)

    with raw_server(says(b"")) as server:
        outcomes = use(server.url, steps, connections=1, silence_s=60.0)
        assert server.connections == 1

    assert all(isinstance(outcome, asyncio.CancelledError) for outcome in outcomes)


@pytest.mark.parametrize("verdict", ["close", "reset"])
def test_a_kept_connection_that_turns_out_dead_is_replaced_at_once(verdict):
    def answer(connection, _head, turn):
        if turn == 1:
            return verdict
        connection.sendall(OK % 5 + b"whole")
        return "keep"

    async def steps(source):
        return [await source.fetch("a", 10, no_matter) for _ in range(3)]

    with raw_server(answer) as server:
        assert use(server.url, steps) == [b"whole"] * 3
        assert server.connections == 3


def test_a_dead_connection_is_replaced_once_and_no_more():
    def answer(connection, _head, _turn):
        if server.connections > 1 or len(server.heads) > 1:
            return "close"
        connection.sendall(OK % 5 + b"whole")
        return "keep"

    async def steps(source):
        await source.fetch("a", 10, no_matter)
        with pytest.raises(StoreUnavailableError):
            await source.fetch("a", 10, no_matter)

    with raw_server(answer) as server:
        use(server.url, steps)
        assert (server.connections, len(server.heads)) == (2, 3)


def test_an_answer_that_had_begun_is_not_asked_for_again():
    def answer(connection, _head, turn):
        connection.sendall(b"HTTP/1.1 200" if turn else OK % 5 + b"whole")
        return "close" if turn else "keep"

    async def steps(source):
        await source.fetch("a", 10, no_matter)
        with pytest.raises(StoreUnavailableError):
            await source.fetch("a", 10, no_matter)

    with raw_server(answer) as server:
        use(server.url, steps)
        assert server.connections == 1


def test_the_fetch_after_a_killed_server_has_come_back_succeeds(store):
    async def steps(source):
        await asyncio.gather(*(source.fetch(f"chunks/{number}", 300_000, no_matter) for number in range(6)))
        first.stop(signal.SIGKILL)
        with pytest.raises(StoreUnavailableError):
            await source.fetch("chunks/1", 300_000, no_matter)
        with running_server(store.root, first.port):
            return await source.fetch("chunks/1", 300_000, no_matter)

    with running_server(store.root) as first:
        assert use(first.url, steps) == bytes([1]) * 300_000


def test_a_server_that_takes_no_connection_is_given_up():
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener:
        address = listener.getsockname()
        fillers = []
        # a queue that is full makes the machine drop what knocks, as a host that is down would
        for _ in range(3):
            filler = socket.socket()
            filler.setblocking(False)
            filler.connect_ex(address)
            fillers.append(filler)
        try:
            with pytest.raises(StoreUnavailableError, match=r"127\.0\.0\.1"):
                use(f"http://127.0.0.1:{address[1]}", lambda s: s.fetch("a", 10, no_matter), connect_s=0.3)
        finally:
            for filler in fillers:
                filler.close()


def test_no_fetch_begins_once_the_source_is_closed():
    async def steps(source):
        await source.close()
        await source.fetch("a", 10, no_matter)

    with pytest.raises(StoreUnavailableError, match="closed"):
        use("http://127.0.0.1:9", steps)


def test_a_name_that_is_none_is_refused_before_it_is_sent():
    with pytest.raises(InvalidInputError, match="object name"):
        use("http://127.0.0.1:9", lambda source: source.fetch("../secret", 10, no_matter))


@pytest.mark.parametrize("by", ["argument", "environment"])
def test_the_token_is_shown_with_every_request(by, monkeypatch):
    if by == "environment":
        monkeypatch.setenv("CACHEGEN_TOKEN", TOKEN)
    with raw_server(says(OK % 2 + b"ab", "keep")) as server:
        use(server.url, lambda s: s.fetch("a", 10, no_matter), token=TOKEN if by == "argument" else None)

    assert f"Authorization: Bearer {TOKEN}\r\n".encode() in server.heads[0]


@pytest.mark.parametrize(
    "token", ["", "short", "x" * 2000, "0123456789abcdef\r\nHost: a", "0123456789 abcdef", "ü" * 20]
)
def test_what_is_no_token_is_refused_and_not_repeated(token):
    with pytest.raises(InvalidInputError, match=r"^token: a token has") as refusal:
        HttpSource("http://127.0.0.1:9", token=token)

    assert not token or token not in str(refusal.value)


@pytest.mark.parametrize("option", ["silence_s", "connect_s", "connections"])
def test_limits_that_are_none_are_refused(option):
    with pytest.raises(InvalidInputError, match=f"{option} is 0"):
        HttpSource("http://127.0.0.1:9", **{option: 0})


@pytest.mark.parametrize(("num_bytes", "window_s"), [(0, 1.0), (1, 0.0), (1, float("nan"))])
def test_progress_that_is_none_is_refused(num_bytes, window_s):
    with pytest.raises(InvalidInputError, match="min_progress"):
        HttpSource("http://127.0.0.1:9", min_progress=MinProgress(num_bytes, window_s))


def test_a_file_of_no_certificates_is_named(tmp_path):
    (tmp_path / "ca.pem").write_text("none", encoding="utf-8")
    for name in ("ca.pem", "absent.pem"):
        with pytest.raises(InvalidInputError, match=name):
            HttpSource("https://127.0.0.1:9", ca_file=tmp_path / name)


def test_https_reads_from_whom_the_certificates_name_and_nobody_else(store, tmp_path):
    certificate, key = write_certificate(tmp_path, "127.0.0.1")
    other, _ = write_certificate(tmp_path / "other", "127.0.0.1")

    def read(**options):
        return use(server.url, lambda source: source.fetch("chunks/1", 300_000, no_matter), **options)

    with running_server(store.root, tls=(certificate, key)) as server:
        assert server.url.startswith("https://")
        assert read(ca_file=certificate) == bytes([1]) * 300_000
        for options in ({}, {"ca_file": other}):
            with pytest.raises(StoreUnavailableError, match="Certificate"):
                read(**options)
        # the wrong protocol, either way
        with pytest.raises(StoreUnavailableError):
            use(server.url.replace("https", "http"), lambda source: source.fetch("chunks/1", 300_000, no_matter))
    with raw_server(says(b"garbage" * 100, "close")) as plain, pytest.raises(StoreUnavailableError):
        use(plain.url.replace("http", "https"), lambda s: s.fetch("a", 10, no_matter), connect_s=1.0)
