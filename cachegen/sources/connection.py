"""One kept-alive connection to a storage server, for one request at a time."""

import asyncio
import ssl
from types import SimpleNamespace
from typing import Any

import aiohttp

from cachegen.errors import StoreUnavailableError

# An answer's head has a handful of short lines; what is beyond that is not from a storage server.
_MAX_LINE_BYTES, _MAX_HEADERS = 4096, 64
# The server's own limit is far higher, so that the client is the one to hang up.
_KEEPALIVE_S = 30.0


class Connection:
    """Asks for one URL after the other over one connection, and makes a new one where it is gone.

    A request whose kept-alive connection turns out to be dead, with no byte of an answer, is repeated at once on a
    fresh one, and only then: the server has restarted, or has closed the connection as idle.

    Parameters
    ----------
    headers : dict of str
        Of every request.
    tls : ssl.SSLContext, optional
        For ``https`` URLs.
    connect_s, silence_s : float
        Limits to making a connection, name look-up and TLS included, and to the server's silence.

    Attributes
    ----------
    carried_bytes : int
        What the present connection has brought, for its user to add to; back to 0 with each new one.
    is_open : bool
        Whether the last answer came whole, so that the next one need not wait for a new connection; set by its user.
    took_s : float
        What it took to make the present connection; 0 while there is none.
    ends_s : float or None
        When, on the loop's clock, the answer under way should be whole, ``None`` if that is not known; set by its user.
    """

    def __init__(self, headers: dict[str, str], tls: ssl.SSLContext | None, connect_s: float, silence_s: float) -> None:
        self._head_s, self._reused = connect_s + silence_s, False
        self.carried_bytes, self.is_open = 0, False
        self.took_s, self._begun_s = 0.0, 0.0
        self.ends_s: float | None = None
        trace = aiohttp.TraceConfig()
        trace.on_connection_reuseconn.append(self._note_reuse)
        trace.on_connection_create_start.append(self._note_begun)
        trace.on_connection_create_end.append(self._note_new)
        # one connection and no more: where it is dead, there is no second one that may be dead too
        connector = aiohttp.TCPConnector(limit=1, ssl=True if tls is None else tls, keepalive_timeout=_KEEPALIVE_S)
        self._session = aiohttp.ClientSession(
            connector=connector,
            headers=headers,
            timeout=aiohttp.ClientTimeout(total=None, connect=connect_s, sock_read=silence_s),
            auto_decompress=False,
            trust_env=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            max_line_size=_MAX_LINE_BYTES,
            max_field_size=_MAX_LINE_BYTES,
            max_headers=_MAX_HEADERS,
            middlewares=[self._repeat_if_stale],
            trace_configs=[trace],
        )

    async def get(self, url: str) -> aiohttp.ClientResponse:
        """Return the answer to a GET of ``url`` when its head is there; its body is to be read or closed.

        Raises
        ------
        StoreUnavailableError
            No connection, or one that ends before an answer's head, or a head that does not end.
        aiohttp.ClientError, TimeoutError
            Anything else that is not as it should be.
        """
        try:
            # a server that sends its head byte by byte is never silent
            async with asyncio.timeout(self._head_s) as patience:
                return await self._session.get(url, allow_redirects=False)
        except TimeoutError as error:
            if not patience.expired():
                raise
            raise StoreUnavailableError(f"{url}: no whole head of an answer within {self._head_s} s") from error

    async def _note_reuse(self, _session: aiohttp.ClientSession, _context: SimpleNamespace, _params: Any) -> None:
        self._reused = True

    async def _note_begun(self, _session: aiohttp.ClientSession, _context: SimpleNamespace, _params: Any) -> None:
        self.carried_bytes, self.took_s = 0, 0.0
        self._begun_s = asyncio.get_running_loop().time()

    async def _note_new(self, _session: aiohttp.ClientSession, _context: SimpleNamespace, _params: Any) -> None:
        self.took_s = asyncio.get_running_loop().time() - self._begun_s

    async def _repeat_if_stale(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        """Send the request; aiohttp itself would repeat any GET that gets no answer, which this error prevents."""
        self._reused = False
        try:
            return await handler(request)
        except aiohttp.ServerTimeoutError:
            raise
        except aiohttp.ClientConnectionError as error:
            if not self._reused or _has_begun(error):
                raise _unavailable(request, error) from error
        try:
            # the dead connection was the only one, so this one is fresh
            return await handler(request)
        except aiohttp.ServerTimeoutError:
            raise
        except aiohttp.ClientConnectionError as error:
            raise _unavailable(request, error) from error

    async def close(self) -> None:
        """Close the connection."""
        await self._session.close()


def _has_begun(error: aiohttp.ClientConnectionError) -> bool:
    """Whether a part of an answer's head had arrived: the error then carries that in place of a text."""
    return isinstance(error, aiohttp.ServerDisconnectedError) and not isinstance(error.message, str)


def _unavailable(request: aiohttp.ClientRequest, error: aiohttp.ClientConnectionError) -> StoreUnavailableError:
    return StoreUnavailableError(f"{request.url}: {type(error).__name__}: {error}")
