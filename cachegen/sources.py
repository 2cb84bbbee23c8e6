"""Where a loader reads objects from: over HTTP, byte by byte as they arrive, or out of any store."""

import asyncio
from collections.abc import Callable
from typing import Protocol
from urllib.parse import urlsplit

import aiohttp

from cachegen.errors import InvalidInputError, ObjectNotFoundError, StoreUnavailableError
from cachegen.stores import Store, open_store

_READ_BYTES = 1 << 18


class Source(Protocol):
    """Reads whole objects; one instance serves one load."""

    received_bytes: int
    """Bytes of objects that have arrived so far, those of broken transfers included."""

    async def fetch(self, name: str, max_bytes: int, on_first_byte: Callable[[], None]) -> bytes:
        """Return the object ``name``, of ``max_bytes`` at most.

        ``on_first_byte`` is called once, when the answer begins to arrive.

        Raises
        ------
        ObjectNotFoundError
            There is no such object.
        StoreUnavailableError
            No answer, a broken connection, silence for too long, or more than ``max_bytes``.
        """
        ...

    async def close(self) -> None:
        """Give up connections."""
        ...


class HttpSource:
    """Objects of a storage server, all over one kept-alive connection.

    Parameters
    ----------
    base_url : str
        Of the server, ``http://host:port``.
    silence_s : float
        How long the server may stay silent before the fetch fails.

    Raises
    ------
    InvalidInputError
        Not an ``http`` URL of a host.
    """

    def __init__(self, base_url: str, silence_s: float = 5.0) -> None:
        _check_url(base_url)
        self.received_bytes = 0
        self._base_url, self._silence_s = base_url.rstrip("/"), silence_s
        self._session: aiohttp.ClientSession | None = None

    async def fetch(self, name: str, max_bytes: int, on_first_byte: Callable[[], None]) -> bytes:
        """See :meth:`Source.fetch`."""
        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=None, sock_connect=self._silence_s, sock_read=self._silence_s)
            # as many connections as a context has index objects: chunks come one after the other
            self._session = aiohttp.ClientSession(
                timeout=timeout,
                connector=aiohttp.TCPConnector(limit=2),
                auto_decompress=False,
                trust_env=False,
            )
        url = f"{self._base_url}/v1/objects/{name}"
        try:
            async with self._session.get(url, allow_redirects=False) as response:
                if response.status == 404:
                    raise ObjectNotFoundError(f"{url}: no such object")
                if response.status != 200:
                    raise StoreUnavailableError(f"{url}: answered with status {response.status}")
                on_first_byte()
                return await self._read(response, url, max_bytes)
        except TimeoutError as error:
            raise StoreUnavailableError(f"{url}: silent for {self._silence_s} s") from error
        except aiohttp.ClientError as error:
            raise StoreUnavailableError(f"{url}: {type(error).__name__}: {error}") from error

    async def _read(self, response: aiohttp.ClientResponse, url: str, max_bytes: int) -> bytes:
        body = bytearray()
        async for piece in response.content.iter_chunked(_READ_BYTES):
            self.received_bytes += len(piece)
            body += piece
            if len(body) > max_bytes:
                raise StoreUnavailableError(f"{url}: sent more than the {max_bytes} bytes that were expected")
        return bytes(body)

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()


class StoreSource:
    """Objects of a store in this process or on this machine."""

    def __init__(self, store: Store) -> None:
        self.received_bytes = 0
        self._store = store

    async def fetch(self, name: str, max_bytes: int, on_first_byte: Callable[[], None]) -> bytes:
        """See :meth:`Source.fetch`."""
        on_first_byte()
        data = await asyncio.to_thread(self._store.get, name, 0, max_bytes + 1)
        self.received_bytes += len(data)
        if len(data) > max_bytes:
            raise StoreUnavailableError(f"{name}: holds more than the {max_bytes} bytes that were expected")
        return data

    async def close(self) -> None:
        """Nothing is held."""


def open_source(url: str) -> Source:
    """Source for ``http://host:port``, or for any other store that :func:`open_store` opens."""
    return HttpSource(url) if url.startswith("http://") else StoreSource(open_store(url))


def _check_url(url: str) -> None:
    """Refuse what is not ``http://HOST[:PORT]``."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
        (host or "").encode("idna")  # as the look-up will, which would raise in the middle of a request
    except ValueError as error:
        raise InvalidInputError(f"{url}: {error}") from error
    if parts.scheme != "http" or not host or parts.username or parts.path.strip("/") or parts.query:
        raise InvalidInputError(f"{url}: a storage server's URL is http://HOST:PORT")
