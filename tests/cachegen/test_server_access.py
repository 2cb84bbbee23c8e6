"""Who may ask: tokens, TLS, and where the server listens."""

import http.client
import ssl
from pathlib import Path

import pytest
from certificates import write_certificate
from storage_server import running_server

from cachegen import InvalidInputError
from cachegen.cli import main
from cachegen.server.exposure import is_loopback
from cachegen.server.options import ServerOptions
from cachegen.server.run import serve
from cachegen.stores import FileStore

TOKEN = "0123456789abcdefXYZ"


@pytest.fixture
def root(tmp_path):
    FileStore(tmp_path / "store").put("a", b"the object")
    return tmp_path / "store"


def ask(server, path="/v1/objects/a", **headers):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    connection.request("GET", path, headers=headers)
    response = connection.getresponse()
    body = response.read()
    connection.close()
    return response, body


@pytest.mark.parametrize("by", ["file", "environment"])
def test_only_who_shows_the_token_is_answered(root, tmp_path, by):
    (tmp_path / "token").write_text(f"{TOKEN}\n", encoding="utf-8")
    given = {"flags": ("--token-file", str(tmp_path / "token"))} if by == "file" else {"CACHEGEN_TOKEN": TOKEN}
    with running_server(root, **given) as server:
        assert ask(server, Authorization=f"Bearer {TOKEN}")[1] == b"the object"
        assert ask(server, Authorization=f"bearer  {TOKEN}")[1] == b"the object"
        for shown in (
            {},
            *({"Authorization": word} for word in (TOKEN, f"Basic {TOKEN}", f"Bearer {TOKEN}x", "Bearer é")),
        ):
            for path in ("/v1/objects/a", "/v1/objects/absent", "/metrics", "/elsewhere"):
                response, body = ask(server, path, **shown)
                assert response.status == 401
                assert response.headers["WWW-Authenticate"] == 'Bearer realm="cachegen"'
                assert b"object" not in body
        # probes have none
        assert ask(server, "/healthz")[0].status == ask(server, "/readyz")[0].status == 200
        assert ask(server, "/metrics", Authorization=f"Bearer {TOKEN}")[0].status == 200


def test_the_token_is_in_no_command_line_and_no_text(root):
    with running_server(root, CACHEGEN_TOKEN=TOKEN) as server:
        assert TOKEN.encode() not in Path(f"/proc/{server.process.pid}/cmdline").read_bytes()
    assert TOKEN not in repr(ServerOptions(token=TOKEN))


@pytest.mark.parametrize("text", ["short", "two words that are long enough", "ü" * 30])
def test_a_file_of_no_token_is_named(root, tmp_path, capsys, text):
    (tmp_path / "token").write_text(text, encoding="utf-8")
    for name in ("token", "absent"):
        assert main(["serve", "--root", str(root), "--token-file", str(tmp_path / name)]) == 2
        shown = capsys.readouterr().err
        assert name in shown
        assert text not in shown


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_beyond_loopback_nothing_listens_without_a_token(root, monkeypatch, host):
    monkeypatch.delenv("CACHEGEN_TOKEN", raising=False)
    with pytest.raises(InvalidInputError, match="--insecure-no-token"):
        serve(root, host, 0, print)


@pytest.mark.parametrize(
    ("flags", "environment"),
    [(("--insecure-no-token",), {}), ((), {"CACHEGEN_TOKEN": TOKEN})],
    ids=["told so", "with a token"],
)
def test_beyond_loopback_the_server_listens_when_told_to(root, flags, environment):
    with running_server(root, flags=("--host", "0.0.0.0", *flags), **environment) as server:
        assert ask(server, "/healthz")[0].status == 200


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("::ffff:10.0.0.1", False),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("fe80::1%lo", False),
    ],
)
def test_loopback_is_told_from_the_rest(address, expected):
    assert is_loopback(address) is expected


def test_https_serves_whole_objects_and_ranges(root, tmp_path):
    certificate, key = write_certificate(tmp_path, "127.0.0.1")
    data = bytes(range(256)) * 20_000
    FileStore(root).put("large", data)
    with running_server(root, tls=(certificate, key)) as server:
        context = ssl.create_default_context(cafile=certificate)
        connection = http.client.HTTPSConnection("127.0.0.1", server.port, timeout=30, context=context)
        for headers, expected in (({}, data), ({"Range": "bytes=5-999999"}, data[5:1_000_000])):
            connection.request("GET", "/v1/objects/large", headers=headers)
            assert connection.getresponse().read() == expected
        connection.close()


def test_certificates_and_keys_that_are_none_are_named(root, tmp_path):
    certificate, key = write_certificate(tmp_path, "127.0.0.1")
    _, other_key = write_certificate(tmp_path / "other", "127.0.0.1")
    _, locked_key = write_certificate(tmp_path / "locked", "127.0.0.1", password=b"secret")
    (tmp_path / "text").write_text("no certificate", encoding="utf-8")
    (tmp_path / "broken").write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", encoding="utf-8")
    for cert_file, key_file, named in (
        (tmp_path / "absent", key, "absent"),
        (certificate, tmp_path / "absent", "absent"),
        (tmp_path / "text", key, "text"),
        (tmp_path / "broken", key, "broken"),
        (certificate, tmp_path / "text", "text"),
        (certificate, other_key, "other"),
        (certificate, locked_key, "locked"),
    ):
        with pytest.raises(InvalidInputError, match=named):
            serve(root, "127.0.0.1", 0, print, ServerOptions(tls_cert=cert_file, tls_key=key_file))
    for half in ({"tls_cert": certificate}, {"tls_key": key}):
        with pytest.raises(InvalidInputError, match="together"):
            ServerOptions(**half)
