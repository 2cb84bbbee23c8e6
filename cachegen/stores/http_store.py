"""A store read over HTTP from ``cachegen.server``, on connections that are kept alive."""

import http.client
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

from cachegen.errors import InvalidInputError, ObjectNotFoundError, StoreError, StoreUnavailableError
from cachegen.stores.base import check_name, check_range

# How long the server may be silent: an outage of a mobile link lasts seconds.
SILENCE_S = 30.0

# What a broken connection, a silent server or an answer that is not HTTP raise.
_FAILURES = (OSError, http.client.HTTPException)
_READ_BYTES = 1 << 20
# A length in bytes that a file can have.
_LENGTH = re.compile(r"[0-9]{1,19}")
# The answer to a range that starts at the object's end or behind it.
_OUTSIDE = http.client.REQUESTED_RANGE_NOT_SATISFIABLE


class HttpStore:
    """The objects that a server gives out, to read; safe to use from several threads.

    Parameters
    ----------
    base_url
        Where the server is, like ``http://10.0.0.1:8080``.
    silence_s
        Seconds without a byte after which the server counts as unavailable.

    Raises
    ------
    InvalidInputError
        Not an ``http`` URL of a host.
    """

    def __init__(self, base_url: str, silence_s: float = SILENCE_S) -> None:
        self._host, self._port = parse_url(base_url)
        self._base_url = base_url.rstrip("/")
        self._silence_s = silence_s
        # Connections whose last answer was read to its end; append and pop are atomic.
        self._idle: list[http.client.HTTPConnection] = []

    def get(self, name: str, start: int = 0, end: int | None = None) -> bytes:
        """See ``Store.get``."""
        check_range(start, end)
        if start == end:
            self.size(name)  # an empty range cannot be asked for, but the object must be there
            return b""
        if start == 0 and end is None:
            return self._request("GET", name, {}, {http.client.OK})[1]
        headers = {"Range": f"bytes={start}-{'' if end is None else end - 1}"}
        response, body = self._request("GET", name, headers, {http.client.PARTIAL_CONTENT, _OUTSIDE})
        if response.status == _OUTSIDE:
            return b""
        if end is not None and len(body) > end - start:
            raise StoreError(f"{self._base_url}: {name}: {len(body)} bytes to a request for {end - start}")
        return body

    def size(self, name: str) -> int:
        """See ``Store.size``."""
        response, _ = self._request("HEAD", name, {}, {http.client.OK})
        return int(response.headers["Content-Length"])

    def put(self, name: str, data: bytes) -> None:  # noqa: ARG002 - refused, whatever it is
        """Refuse: the server takes no writes.

        Raises
        ------
        StoreError
            Always.
        """
        raise self._read_only(name)

    def delete(self, name: str) -> None:
        """Refuse: the server takes no writes.

        Raises
        ------
        StoreError
            Always.
        """
        raise self._read_only(name)

    def names(self, prefix: str = "") -> list[str]:
        """Refuse: the server lists nothing; names come from manifests.

        Raises
        ------
        StoreError
            Always.
        """
        raise StoreError(f"{self._base_url}: {prefix!r}: the server does not list its objects")

    def close(self) -> None:
        """See ``Store.close``."""
        while self._idle:
            self._idle.pop().close()

    def _read_only(self, name: str) -> StoreError:
        return StoreError(f"{self._base_url}: {name}: the server takes no writes")

    def _request(
        self, method: str, name: str, headers: dict[str, str], expected: set[int]
    ) -> tuple[http.client.HTTPResponse, bytes]:
        """Return the answer and its body if its status is one of those expected."""
        check_name(name)
        path = f"/v1/objects/{name}"
        url = self._base_url + path
        try:
            connection, response = self._answer(method, path, headers)
            with _closed_on_failure(connection):
                body = _read(response)
        except _FAILURES as error:
            raise StoreUnavailableError(f"{url}: {type(error).__name__}: {error}") from error
        if connection.sock is not None:  # the server did not ask to close it
            self._idle.append(connection)
        _check_status(url, response.status, expected)
        if response.status != _OUTSIDE and not _LENGTH.fullmatch(response.headers.get("Content-Length", "")):
            # Without a length nobody knows whether the connection broke before the end.
            raise StoreUnavailableError(f"{url}: an answer of unknown length")
        return response, body

    def _answer(
        self, method: str, path: str, headers: dict[str, str]
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        while connection := self._take_idle():
            # The server may have closed it since; then nothing was served and asking again is safe.
            with suppress(ConnectionError):
                return connection, _ask(connection, method, path, headers)
        connection = http.client.HTTPConnection(self._host, self._port, timeout=self._silence_s)
        return connection, _ask(connection, method, path, headers)

    def _take_idle(self) -> http.client.HTTPConnection | None:
        try:
            return self._idle.pop()
        except IndexError:
            return None


def _ask(
    connection: http.client.HTTPConnection, method: str, path: str, headers: dict[str, str]
) -> http.client.HTTPResponse:
    with _closed_on_failure(connection):
        connection.request(method, path, headers=headers)
        return connection.getresponse()


def _read(response: http.client.HTTPResponse) -> bytes:
    """Return the body, piece by piece: room is made for what has come, not for the length that the server states."""
    body = bytearray()
    while piece := response.read(_READ_BYTES):
        body += piece
    if response.length:
        raise http.client.IncompleteRead(bytes(body), response.length)
    return bytes(body)


@contextmanager
def _closed_on_failure(connection: http.client.HTTPConnection) -> Iterator[None]:
    try:
        yield
    except _FAILURES:
        connection.close()
        raise


def _check_status(url: str, status: int, expected: set[int]) -> None:
    if status == http.client.NOT_FOUND:
        raise ObjectNotFoundError(f"{url}: no such object")
    if status >= http.client.INTERNAL_SERVER_ERROR:
        raise StoreUnavailableError(f"{url}: status {status}")
    if status not in expected:
        raise StoreError(f"{url}: unexpected status {status}")


def parse_url(url: str) -> tuple[str, int]:
    """Return host and port of a storage server's URL.

    Raises
    ------
    InvalidInputError
        Not ``http://HOST:PORT``.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
        (host or "").encode("idna")  # as the look-up will, which would raise in the middle of a request
    except ValueError as error:
        raise InvalidInputError(f"{url}: {error}") from error
    if parts.scheme != "http" or not host or parts.username or parts.path.strip("/") or parts.query:
        raise InvalidInputError(f"{url}: a store's URL is http://HOST:PORT")
    return host, port or http.client.HTTP_PORT
