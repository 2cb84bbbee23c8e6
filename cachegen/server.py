"""The storage server: gives out the objects of a file store over HTTP, whole or by byte range.

``GET`` and ``HEAD`` of ``/v1/objects/<name>`` answer with the object, by ``sendfile``, with ETag and ranges.
They answer 400 to what is no object name, 404 where there is no object, 416 to a range outside of it.
``GET /healthz`` answers 200. There are no writes and no request bodies. TCP's congestion control is left as
the machine has it.
"""

import asyncio
import json
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

from aiohttp import hdrs, web
from aiohttp.abc import AbstractStreamWriter

from cachegen.errors import InvalidInputError, ObjectNotFoundError, StoreUnavailableError
from cachegen.stores import FileStore

# A connection that asks for nothing is closed after this time, one that reads too slowly after the next.
IDLE_S = 75.0
TRANSFER_S = 600.0
# What is being sent at a stop may take this long to end.
GRACE_S = 5.0

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_STORE = web.AppKey("store", FileStore)


def serve(root: str | Path, host: str, port: int, announce: Callable[[str], None]) -> None:
    """Serve the store in ``root`` until SIGTERM or SIGINT; call it in the main thread.

    Parameters
    ----------
    host
        Address to listen on; nobody is asked who they are, so mind where others can reach it.
    port
        0 takes a free one.
    announce
        Called once when the server is ready, with a line of JSON:
        ``{"event": "ready", "host": ..., "port": ..., "url": ...}``.

    Raises
    ------
    InvalidInputError
        No such port.
    StoreUnavailableError
        The address cannot be listened on.
    """
    if not 0 <= port < 1 << 16:
        raise InvalidInputError(f"port is {port}, must be in 0..65535")
    asyncio.run(_serve(FileStore(root), host, port, announce))


async def _serve(store: FileStore, host: str, port: int, announce: Callable[[str], None]) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    runner = web.AppRunner(make_app(store), access_log=None, keepalive_timeout=IDLE_S, shutdown_timeout=GRACE_S)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, host, port).start()
        except OSError as error:
            raise StoreUnavailableError(f"{host}:{port}: {error.strerror}") from error
        announce(_ready_line(*runner.addresses[0][:2]))
        await stop.wait()
    finally:
        await runner.cleanup()


def make_app(store: FileStore) -> web.Application:
    """Return the server's application, which ``serve`` runs."""
    app = web.Application(middlewares=[_refuse_bodies])
    app[_STORE] = store
    app.router.add_get("/healthz", _answer_health)
    app.router.add_get("/v1/objects/{name:.*}", _answer_object)
    return app


def _ready_line(host: str, port: int) -> str:
    url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    return json.dumps({"event": "ready", "host": host, "port": port, "url": url})


@web.middleware
async def _refuse_bodies(request: web.Request, handler: _Handler) -> web.StreamResponse:
    if request.body_exists:
        response = web.Response(status=413, text="this server takes no request bodies\n")
        # What the client still sends is not read, so the connection is of no more use.
        response.force_close()
        return response
    return await handler(request)


async def _answer_health(_request: web.Request) -> web.StreamResponse:
    return web.json_response({"status": "ok"})


async def _answer_object(request: web.Request) -> web.StreamResponse:
    store = request.app[_STORE]
    try:
        # The look-up touches the disk, which may be slow: not in the loop that serves everyone.
        path = await asyncio.to_thread(store.path, request.match_info["name"])
    except InvalidInputError as error:
        raise web.HTTPBadRequest(text=f"{error}\n") from error
    except ObjectNotFoundError as error:
        raise web.HTTPNotFound(text="no such object\n") from error
    except StoreUnavailableError as error:
        raise web.HTTPServiceUnavailable(text="the store does not answer\n") from error
    return _ObjectResponse(path)


class _ObjectResponse(web.FileResponse):
    """A file as it is, in bounded time."""

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        # FileResponse would answer with NAME.gz, another object, to a client that accepts gzip.
        headers = request.headers.copy()
        headers.popall(hdrs.ACCEPT_ENCODING, None)
        try:
            async with asyncio.timeout(TRANSFER_S):
                return await super().prepare(request.clone(headers=headers))
        except TimeoutError as error:
            if request.transport is not None:
                request.transport.abort()
            raise ConnectionResetError(f"{request.path}: not read within {TRANSFER_S} s") from error
