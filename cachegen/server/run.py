"""The server's life: from listening to a stop that lets transfers end."""

import asyncio
import contextlib
import json
import logging
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web
from aiohttp.http import HttpProcessingError

from cachegen.errors import InvalidInputError
from cachegen.server.acceptor import Acceptor
from cachegen.server.app import make_app
from cachegen.server.exposure import is_loopback, listen, tls_context
from cachegen.server.metrics import ServerMetrics, request_counter
from cachegen.server.options import ServerOptions
from cachegen.stores import FileStore, UseRecorder

# A name has at most 512 characters, a token 1,024; nothing else of a request is read.
_MAX_LINE_BYTES, _MAX_HEADERS = 4096, 64
# A body that is refused is listened to for this long, so that its sender can read why.
_LINGER_S = 2.0
# What is left of a connection when its transfer has been cut.
_CUT_S = 1.0
_POLL_S = 0.05

_LOG = logging.getLogger("cachegen.server")


def serve(
    root: str | Path,
    host: str,
    port: int,
    announce: Callable[[str], None],
    options: ServerOptions | None = None,
) -> None:
    """Serve the store in ``root`` until SIGTERM or SIGINT; call it in the main thread.

    Parameters
    ----------
    host
        Address to listen on. One that other machines reach needs a token, or the word that it needs none.
    port
        0 takes a free one.
    announce
        Called once when the server is ready, with a line of JSON:
        ``{"event": "ready", "host": ..., "port": ..., "url": ...}``.
    options
        Access and limits; by default those of ``ServerOptions``.

    Raises
    ------
    InvalidInputError
        No such port, no folder, an address that needs a token, or files that are no certificate and key.
    StoreUnavailableError
        The address cannot be listened on.
    """
    asyncio.run(_serve(Path(root), host, port, announce, options or ServerOptions()))


async def _serve(root: Path, host: str, port: int, announce: Callable[[str], None], options: ServerOptions) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with serving(root, host, port, options) as ready:
        announce(json.dumps(ready))
        await stop.wait()


@asynccontextmanager
async def serving(root: Path, host: str, port: int, options: ServerOptions) -> AsyncIterator[dict[str, str | int]]:
    """Serve the store in ``root`` until the block ends; see ``serve``, whose announcement this yields."""
    if root.exists() and not root.is_dir():
        raise InvalidInputError(f"{root}: not a folder")
    tls = tls_context(options.tls_cert, options.tls_key) if options.tls_cert and options.tls_key else None
    metrics = ServerMetrics()
    store = FileStore(root)
    uses = UseRecorder(store)
    app = make_app(store, options, metrics, uses)

    async def await_transfers(_app: web.Application) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(options.grace_s):
                while metrics.in_flight:
                    await asyncio.sleep(_POLL_S)
        metrics.cut_transfers += metrics.in_flight

    app.on_shutdown.append(await_transfers)
    runner = web.AppRunner(
        app,
        access_log_class=request_counter(metrics),
        access_log=_LOG,
        logger=_http_log(),
        keepalive_timeout=options.idle_s,
        lingering_time=_LINGER_S,
        max_line_size=_MAX_LINE_BYTES,
        max_field_size=_MAX_LINE_BYTES,
        max_headers=_MAX_HEADERS,
        shutdown_timeout=_CUT_S,
    )
    with listen(host, port, options) as listener:
        address, bound_port = listener.getsockname()[:2]
        _warn(root, address, options)
        await runner.setup()
        assert runner.server is not None  # it is set up
        accepting = asyncio.create_task(Acceptor(runner.server, options.max_connections, tls, metrics).run(listener))
        try:
            shown = f"[{address}]" if ":" in address else address
            url = f"{'http' if tls is None else 'https'}://{shown}:{bound_port}"
            yield {"event": "ready", "host": address, "port": bound_port, "url": url}
        finally:
            accepting.cancel()
            await asyncio.wait([accepting])
            listener.close()
            await runner.cleanup()
            uses.close()


def _warn(root: Path, address: str, options: ServerOptions) -> None:
    if not root.exists():
        _LOG.warning("%s: no such folder yet; the first context that is stored makes it", root)
    if is_loopback(address):
        return
    if options.token is None:
        _LOG.warning("%s: whoever reaches this address reads every object", address)
    elif options.tls_cert is None:
        _LOG.warning("%s: without TLS, the token can be read on its way", address)


def _http_log() -> logging.Logger:
    """Return aiohttp's log without what it says of malformed requests, which anyone can send in any number."""
    log = logging.getLogger("cachegen.server.http")
    log.addFilter(_is_our_fault)
    return log


def _is_our_fault(record: logging.LogRecord) -> bool:
    return record.exc_info is None or not isinstance(record.exc_info[1], HttpProcessingError)
