"""Taking connections while there is room, and turning away the others at once."""

import asyncio
import contextlib
import socket
import ssl

from aiohttp import web

from cachegen.server.metrics import ServerMetrics

_HANDSHAKE_S = 10.0
# When the machine has no room for one more connection, its own queue holds them for this long.
_PAUSE_S = 0.1
_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\n"
    b"Content-Type: text/plain\r\nContent-Length: 21\r\n\r\ntoo many connections\n"
)


class Acceptor:
    """Hands connections to aiohttp's server.

    asyncio's own loop would take any number, and none of those that are still in the TLS handshake would count.

    Parameters
    ----------
    server : web.Server
        Answers on the connections.
    max_connections : int
        How many are open at once.
    tls : ssl.SSLContext, optional
        For HTTPS.
    metrics : ServerMetrics
        Counts who was turned away.
    """

    def __init__(
        self, server: web.Server, max_connections: int, tls: ssl.SSLContext | None, metrics: ServerMetrics
    ) -> None:
        self._server, self._max_connections, self._tls, self._metrics = server, max_connections, tls, metrics
        self._arriving: set[asyncio.Task[None]] = set()

    async def run(self, listener: socket.socket) -> None:
        """Take connections until this is cancelled."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                try:
                    connection, _ = await loop.sock_accept(listener)
                except OSError:
                    # no descriptor or no memory left; or a client that was gone before it was let in
                    await asyncio.sleep(_PAUSE_S)
                    continue
                if len(self._arriving) + len(self._server.connections) >= self._max_connections:
                    self._turn_away(connection)
                    continue
                arrival = asyncio.create_task(self._admit(connection))
                self._arriving.add(arrival)
                arrival.add_done_callback(self._arriving.discard)
        finally:
            for arrival in self._arriving:
                arrival.cancel()

    async def _admit(self, connection: socket.socket) -> None:
        # a client that fails at the handshake is its own concern
        with contextlib.suppress(OSError):
            await asyncio.get_running_loop().connect_accepted_socket(
                self._server,
                connection,
                ssl=self._tls,
                ssl_handshake_timeout=None if self._tls is None else _HANDSHAKE_S,
            )

    def _turn_away(self, connection: socket.socket) -> None:
        self._metrics.refused_connections += 1
        with connection, contextlib.suppress(OSError):
            if self._tls is None:
                connection.send(_FULL)
                # a request that is left unread would make the machine take the answer back
                connection.shutdown(socket.SHUT_WR)
                connection.recv(1 << 16)
