"""Objects of a storage server, over HTTP."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
from aiohttp import hdrs

from cachegen.bearer_token import check_token, token_from_environment
from cachegen.errors import InvalidInputError, ObjectNotFoundError, StoreUnavailableError
from cachegen.manifest import is_chunk_name
from cachegen.sources.arrival import Arrival, let_gather
from cachegen.sources.connection import Connection
from cachegen.sources.connection_pool import ConnectionPool
from cachegen.sources.progress import MinProgress, ProgressWatch
from cachegen.stores import check_name

_READ_BYTES = 1 << 18


class HttpSource:
    """Objects of a storage server, over a few kept-alive connections.

    Nothing is retried, but for a kept-alive connection that turns out to be dead: what to do about a server that
    fails is the loader's decision.

    Parameters
    ----------
    base_url : str
        Of the server, ``http://host:port`` or ``https://host:port``.
    silence_s : float
        How long the server may stay silent before the fetch fails.
    connections : int
        How many fetches go on at once; others wait for their turn. The default suits one load at a time; loads that
        share a host ask for up to ``HostLimits.in_flight`` objects at once, and for two more each at their beginning.
    connect_s : float
        How long making a connection may take, name look-up and TLS included.
    min_progress : MinProgress
        The slowest transfer that is not given up.
    token : str, optional
        Bearer token to show; by default what the environment variable ``CACHEGEN_TOKEN`` holds, if anything.
    ca_file : str or Path, optional
        Certificates (PEM) to trust in place of the machine's.

    Raises
    ------
    InvalidInputError
        Not a URL of a host, no token, no certificates, or a limit that is not positive.
    """

    def __init__(
        self,
        base_url: str,
        silence_s: float = 5.0,
        *,
        connections: int = 8,
        connect_s: float = 5.0,
        min_progress: MinProgress = MinProgress(),  # noqa: B008 - frozen
        token: str | None = None,
        ca_file: str | Path | None = None,
    ) -> None:
        _check_url(base_url)
        for name, value in (("silence_s", silence_s), ("connections", connections), ("connect_s", connect_s)):
            if not value > 0:
                raise InvalidInputError(f"{name} is {value}, must be positive")
        if not (min_progress.num_bytes > 0 and min_progress.window_s > 0):
            raise InvalidInputError(f"min_progress is {min_progress}, must be positive in both")
        self.received_bytes = 0
        self._base_url, self._silence_s, self._connect_s = base_url.rstrip("/"), silence_s, connect_s
        self._min_progress = min_progress
        # of an answer in gzip nothing here would be read
        self._headers: dict[str, str] = {hdrs.ACCEPT_ENCODING: "identity"}
        token = token_from_environment() if token is None else check_token(token, "token")
        if token is not None:
            self._headers[hdrs.AUTHORIZATION] = f"Bearer {token}"
        self._tls = _tls_context(ca_file) if base_url.startswith("https://") else None
        self._pool = ConnectionPool(self._base_url, self._connect, connections)

    async def fetch(
        self,
        name: str,
        max_bytes: int,
        on_first_byte: Callable[[], None],
        *,
        on_bytes: Callable[[int], None] | None = None,
    ) -> bytes:
        """See :meth:`Source.fetch`."""
        check_name(name)
        url = f"{self._base_url}/v1/objects/{name}"
        # a response that is left before its end takes its connection with it, and no other
        async with (
            self._pool.turn(long=is_chunk_name(name)) as connection,
            _failures_named(url, self._silence_s),
            await connection.get(url) as response,
        ):
            _check_head(response, url, max_bytes)
            on_first_byte()
            data = await self._read(response, url, max_bytes, on_bytes, connection)
            connection.carried_bytes += len(data)
            connection.is_open = True
            return data

    async def _read(
        self,
        response: aiohttp.ClientResponse,
        url: str,
        max_bytes: int,
        on_bytes: Callable[[int], None] | None,
        connection: Connection,
    ) -> bytes:
        body, clock = bytearray(), asyncio.get_running_loop().time
        watch, arrival = ProgressWatch(self._min_progress, clock()), Arrival(response.content_length, clock())
        try:
            async with asyncio.timeout_at(watch.expires_s) as patience:
                async for piece in response.content.iter_chunked(_READ_BYTES):
                    body += piece
                    self.received_bytes += len(piece)
                    if len(body) > max_bytes:
                        raise _oversized(url, max_bytes)
                    now_s = clock()
                    watch.add(len(piece), now_s)
                    patience.reschedule(watch.expires_s)
                    arrival.add(len(piece))
                    connection.ends_s = arrival.ends_s(now_s)
                    if on_bytes is not None:
                        on_bytes(len(piece))
                    if arrival.may_gather(now_s):
                        await let_gather(response)
        except TimeoutError as error:
            if not patience.expired():
                raise
            rule = self._min_progress
            raise StoreUnavailableError(
                f"{url}: fewer than {rule.num_bytes} bytes came in {rule.window_s} s"
            ) from error
        finally:
            # what had arrived and was not read when the fetch broke off
            self.received_bytes += response.content.total_raw_bytes - len(body)
        return bytes(body)

    def _connect(self) -> Connection:
        return Connection(self._headers, self._tls, self._connect_s, self._silence_s)

    async def close(self) -> None:
        """Close the connections; a fetch that is still in flight fails."""
        await self._pool.close()


@asynccontextmanager
async def _failures_named(url: str, silence_s: float) -> AsyncIterator[None]:
    """Turn whatever a connection may fail with into the sources' error, with the URL."""
    try:
        yield
    except aiohttp.ConnectionTimeoutError as error:
        raise StoreUnavailableError(f"{url}: {error}") from error
    except TimeoutError as error:
        raise StoreUnavailableError(f"{url}: silent for {silence_s} s") from error
    # OSError: what TLS says of the other end; HttpProcessingError: what the parser says of a body
    except (aiohttp.ClientError, aiohttp.http.HttpProcessingError, OSError) as error:
        raise StoreUnavailableError(f"{url}: {type(error).__name__}: {error}") from error


def _check_head(response: aiohttp.ClientResponse, url: str, max_bytes: int) -> None:
    """Refuse an answer that cannot be the whole object as it is."""
    if response.status == 404:
        raise ObjectNotFoundError(f"{url}: no such object")
    if response.status == 401:
        raise StoreUnavailableError(f"{url}: the server asks for another token than the one it was shown, if any")
    if response.status != 200:
        raise StoreUnavailableError(f"{url}: answered with status {response.status}")
    encoding = response.headers.get(hdrs.CONTENT_ENCODING, "identity")
    if encoding != "identity":
        raise StoreUnavailableError(f"{url}: answered in Content-Encoding {encoding[:40]!r}, which was not asked for")
    if (response.content_length or 0) > max_bytes:
        raise _oversized(url, max_bytes)


def _oversized(url: str, max_bytes: int) -> StoreUnavailableError:
    return StoreUnavailableError(f"{url}: sent more than the {max_bytes} bytes that were expected")


def _tls_context(ca_file: str | Path | None) -> ssl.SSLContext:
    """Trust these certificates, by default the machine's (which the variable ``SSL_CERT_FILE`` can name)."""
    try:
        return ssl.create_default_context(cafile=None if ca_file is None else str(ca_file))
    except OSError as error:  # ssl.SSLError is one
        raise InvalidInputError(f"{ca_file}: no certificates to trust: {error.strerror}") from error


def _check_url(url: str) -> None:
    """Refuse what is not ``http://HOST[:PORT]`` or ``https://HOST[:PORT]``."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
        (host or "").encode("idna")  # as the look-up will, which would raise in the middle of a request
    except ValueError as error:
        raise InvalidInputError(f"{url}: {error}") from error
    if parts.scheme not in {"http", "https"} or not host or parts.username or parts.path.strip("/") or parts.query:
        raise InvalidInputError(f"{url}: a storage server's URL is http://HOST:PORT or https://HOST:PORT")
