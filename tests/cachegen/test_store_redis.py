"""The store in Redis: bounded values, a server that is killed, full, silent, encrypted (LMCache #2787, #2143)."""

import os
import signal
import subprocess
import threading
import time

import pytest
from store_servers import free_port, running_redis, running_redis_cluster

from cachegen.errors import ObjectNotFoundError, StoreUnavailableError
from cachegen.stores import open_store, redis_client, redis_store


@pytest.fixture
def server(tmp_path):
    with running_redis(tmp_path) as server:
        yield server


@pytest.fixture
def store(server):
    return open_store(server.url)


@pytest.fixture
def small_parts(monkeypatch):
    """Parts of a thousand bytes, so that many fit a test."""
    monkeypatch.setattr(redis_store, "PART_BYTES", 1000)


def test_no_value_is_larger_than_a_part_and_all_keys_of_an_object_share_a_slot(server, store):
    store.put("a/b", bytes(3 * redis_store.PART_BYTES + 5))

    with server.client() as client:
        keys = client.keys("*")
        assert max(client.strlen(key) for key in keys if not key.endswith(b":head")) == redis_store.PART_BYTES
        assert len(keys) == 5
        assert all(b"{a/b}" in key for key in keys)
        assert {client.ttl(key) for key in keys} == {-1}


def test_replaced_parts_live_on_for_their_readers_and_then_expire(server, store, small_parts):
    store.put("a", b"A" * 3500)
    store.put("a", b"B" * 1500)

    with server.client() as client:
        lives = [client.ttl(key) for key in client.keys("*")]
    assert sorted(life > 0 for life in lives) == [False] * 3 + [True] * 3
    assert max(lives) <= redis_store.GRACE_S
    assert store.get("a") == b"B" * 1500
    store.delete("a")
    with server.client() as client:
        assert all(client.ttl(key) > 0 for key in client.keys("*"))


def test_parts_of_a_writer_that_dies_are_no_object_and_expire(server, store, small_parts, monkeypatch):
    monkeypatch.setattr(redis_store, "_PUBLISH", "return redis.error_reply('killed here')")
    with pytest.raises(StoreUnavailableError, match=f"127.0.0.1:{server.port}/0: a: killed here"):
        store.put("a", bytes(3500))

    assert store.names() == []
    with server.client() as client:
        assert len(client.keys("*")) == 4
        assert all(0 < client.ttl(key) <= redis_store.UNFINISHED_S for key in client.keys("*"))


def test_a_put_whose_parts_the_server_drops_fails_and_keeps_the_old_object(server, store, small_parts, monkeypatch):
    store.put("a", b"old")
    monkeypatch.setattr(redis_store, "UNFINISHED_S", 0.001)
    real = store._client.set
    monkeypatch.setattr(store._client, "set", lambda key, part, ex: real(key, part, px=1))
    real_head = store._head

    def later(keys):
        time.sleep(0.05)
        return real_head(keys)

    monkeypatch.setattr(store, "_head", later)
    with pytest.raises(StoreUnavailableError, match="dropped parts"):
        store.put("a", bytes(3500))
    assert store.get("a") == b"old"


def test_an_object_that_lost_a_part_is_not_found_rather_than_cut(server, store, small_parts):
    store.put("a", b"A" * 3500)
    with server.client() as client:
        [key] = client.keys("*:2")
        client.delete(key)

    assert store.get("a", 0, 2000) == b"A" * 2000
    for bounds in ((0, None), (1999, 2001), (2500, 2600)):
        with pytest.raises(ObjectNotFoundError):
            store.get("a", *bounds)


def test_a_killed_server_is_found_again_after_its_restart(server, store):
    store.put("a", b"1")
    server.kill()
    restart = threading.Timer(0.5, server.start)
    restart.start()

    with pytest.raises(ObjectNotFoundError):  # waits for the server, which has kept nothing
        store.get("a")
    restart.join()
    store.put("a", b"2")
    assert store.get("a") == b"2"


def test_a_server_that_stays_away_fails_every_call_by_name(server, store, monkeypatch):
    monkeypatch.setattr(redis_client, "_RETRIES", 1)
    server.kill()
    store = open_store(server.url)
    for call in (
        lambda: store.put("a", b"1"),
        lambda: store.put_new("a", b"1"),
        lambda: store.get("a"),
        lambda: store.size("a"),
        lambda: store.delete("a"),
        store.names,
        store.entries,
    ):
        with pytest.raises(StoreUnavailableError, match=f"redis://127.0.0.1:{server.port}/0: .*onnect"):
            call()


def test_a_silent_server_is_given_up(server, monkeypatch):
    monkeypatch.setattr(redis_client, "TIMEOUT_S", 0.2)
    store = open_store(server.url)
    store.put("a", b"1")
    os.kill(server.process.pid, signal.SIGSTOP)
    try:
        with pytest.raises(StoreUnavailableError, match="a: Timeout"):
            store.get("a")
    finally:
        os.kill(server.process.pid, signal.SIGCONT)
    assert store.get("a") == b"1"


def test_a_full_server_refuses_the_put_and_keeps_what_it_has(tmp_path):
    with running_redis(tmp_path, "--maxmemory", "20mb", "--maxmemory-policy", "noeviction") as server:
        store = open_store(server.url)
        store.put("a", b"old")
        with pytest.raises(StoreUnavailableError, match=r"a: .*maxmemory"):
            store.put("a", bytes(40 * 2**20))
        assert store.get("a") == b"old"
        assert store.names() == ["a"]


def test_the_password_opens_the_store_and_is_never_shown(tmp_path):
    with running_redis(tmp_path, "--requirepass", "s3cr et/") as server:
        right = f"redis://:s3cr%20et%2F@127.0.0.1:{server.port}/2"
        open_store(right).put("a", b"1")
        assert open_store(right).get("a") == b"1"
        for url in (server.url, right.replace("s3cr", "wr0ng")):
            with pytest.raises(StoreUnavailableError, match=r"a: .*(uthentication|username-password)") as raised:
                open_store(url).get("a")
            assert "wr0ng" not in str(raised.value)


def test_databases_are_apart(server, store):
    store.put("a", b"1")

    assert open_store(server.url.replace("/0", "/1")).names() == []
    with pytest.raises(StoreUnavailableError, match="DB index is out of range"):
        open_store(server.url.replace("/0", "/99")).names()


def test_a_retried_publication_is_done_once(server, store, small_parts, monkeypatch):
    real = store._client.eval

    def answer_lost(*arguments):
        real(*arguments)
        return real(*arguments)

    monkeypatch.setattr(store._client, "eval", answer_lost)
    store.put("a", b"A" * 2500)

    assert store.get("a") == b"A" * 2500


def test_tls_servers_are_reached_and_their_certificates_checked(tmp_path, monkeypatch):
    certificate, key, port = tmp_path / "cert.pem", tmp_path / "key.pem", free_port()
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
            *("-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"),
            *("-keyout", str(key), "-out", str(certificate)),
        ],
        check=True,
        capture_output=True,
    )
    options = ("--tls-port", str(port), "--tls-cert-file", str(certificate), "--tls-key-file", str(key))
    with running_redis(tmp_path, *options, "--tls-auth-clients", "no"):
        monkeypatch.setattr(redis_client, "_RETRIES", 0)
        with pytest.raises(StoreUnavailableError, match="certificate"):
            open_store(f"rediss://127.0.0.1:{port}").names()
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        store = open_store(f"rediss://127.0.0.1:{port}")
        store.put("a", b"1")
        assert store.get("a") == b"1"


def test_a_cluster_spreads_objects_and_any_node_leads_to_them(tmp_path):
    with running_redis_cluster(tmp_path) as servers:
        store = open_store(f"redis+cluster://127.0.0.1:{servers[0].port}")
        for index in range(50):
            store.put(f"chunks/{index}", b"%d" % index)
        for server in servers:
            with server.client() as client:
                assert client.dbsize() > 0

        other = open_store(f"redis+cluster://127.0.0.1:{servers[2].port}")
        assert [other.get(f"chunks/{index}") for index in range(50)] == [b"%d" % index for index in range(50)]
        assert len(other.names("chunks/")) == 50


def test_a_cluster_of_which_no_node_answers_is_named(monkeypatch):
    monkeypatch.setattr(redis_client, "_RETRIES", 0)
    port = free_port()
    with pytest.raises(StoreUnavailableError, match=rf"redis\+cluster://127.0.0.1:{port}"):
        open_store(f"redis+cluster://:secret@127.0.0.1:{port}")


def test_an_object_that_is_replaced_or_removed_between_two_pieces_is_no_mixture(server, store):
    for change in (lambda: store.put("a", b"B" * 400_000), lambda: store.delete("a")):
        store.put("a", b"A" * 400_000)
        arriving = store.read("a", 500_000)
        assert set(next(arriving)) == set(b"A")
        change()
        with pytest.raises(StoreUnavailableError, match=f":{server.port}/0: a: replaced or removed while it was read"):
            next(arriving)


def test_parts_of_a_replaced_object_are_read_to_their_end(store, small_parts):
    store.put("a", b"A" * 3500)
    arriving = store.read("a", 3500)
    first = [next(arriving)]
    store.put("a", b"B" * 10)

    assert b"".join([*first, *arriving]) == b"A" * 3500
