"""The server's paths, and what holds for every request."""

import asyncio
import hmac
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

from aiohttp import hdrs, web

from cachegen.errors import StoreUnavailableError
from cachegen.server.metrics import CONTENT_TYPE, ServerMetrics
from cachegen.server.objects import ObjectHandler, ask_disk
from cachegen.server.options import ServerOptions
from cachegen.stores import FileStore, UseRecorder

# Probes of the machine's own have no token; what these say is no secret.
_OPEN_PATHS = {"/healthz", "/readyz"}

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def make_app(store: FileStore, options: ServerOptions, metrics: ServerMetrics, uses: UseRecorder) -> web.Application:
    """Return the application that answers for ``store``."""

    async def alive(_request: web.Request) -> web.StreamResponse:
        return web.json_response({"status": "ok"})

    async def ready(_request: web.Request) -> web.StreamResponse:
        return await _answer_ready(store.root)

    async def show_metrics(_request: web.Request) -> web.StreamResponse:
        return web.Response(body=metrics.exposition(uses).encode(), headers={hdrs.CONTENT_TYPE: CONTENT_TYPE})

    app = web.Application(middlewares=[_guard(options, metrics)])
    app.router.add_get("/healthz", alive)
    app.router.add_get("/readyz", ready)
    app.router.add_get("/metrics", show_metrics)
    app.router.add_get("/v1/objects/{name:.*}", ObjectHandler(store, options.stall_s, metrics, uses).answer)
    return app


async def _answer_ready(root: Path) -> web.StreamResponse:
    def look() -> None:
        with os.scandir(root) as entries:
            next(entries, None)

    try:
        await ask_disk(look)
    except OSError as error:
        return web.json_response({"status": "unavailable", "reason": error.strerror}, status=503)
    except StoreUnavailableError as error:
        return web.json_response({"status": "unavailable", "reason": str(error)}, status=503)
    return web.json_response({"status": "ok"})


def _guard(options: ServerOptions, metrics: ServerMetrics) -> Callable[..., Awaitable[web.StreamResponse]]:
    """Return the middleware that every request passes."""

    @web.middleware
    async def guard(request: web.Request, handler: _Handler) -> web.StreamResponse:
        response: web.StreamResponse = web.Response(status=503)
        metrics.in_flight += 1
        try:
            async with asyncio.timeout(options.request_s):
                response = _refusal(request, options.token) or await _answer(request, handler)
                # sent here, not by aiohttp behind the handler, so that the limit holds for the sending too
                await response.prepare(request)
                await response.write_eof()
        except TimeoutError:
            metrics.cut_transfers += 1
            if request.transport is not None:
                request.transport.abort()
        except ConnectionError:
            # nobody is there to tell
            pass
        finally:
            metrics.in_flight -= 1
        return response

    return guard


async def _answer(request: web.Request, handler: _Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except web.HTTPException as refusal:  # the router's: no such path, no such method
        allow = {hdrs.ALLOW: refusal.headers[hdrs.ALLOW]} if hdrs.ALLOW in refusal.headers else {}
        return web.Response(status=refusal.status, text=f"{refusal.reason}\n", headers=allow)


def _refusal(request: web.Request, token: str | None) -> web.Response | None:
    if token is not None and request.path not in _OPEN_PATHS and not _shows(request, token):
        response = web.Response(
            status=401, text="a bearer token is needed\n", headers={hdrs.WWW_AUTHENTICATE: 'Bearer realm="cachegen"'}
        )
    elif request.body_exists:
        response = web.Response(status=413, text="this server takes no request bodies\n")
    else:
        return None
    if request.body_exists:
        # what the client still sends is not read, so the connection is of no more use
        response.force_close()
    return response


def _shows(request: web.Request, token: str) -> bool:
    scheme, _, shown = request.headers.get(hdrs.AUTHORIZATION, "").partition(" ")
    # takes equally long wherever the two differ
    return scheme.lower() == "bearer" and hmac.compare_digest(
        shown.strip().encode("utf-8", "surrogateescape"), token.encode()
    )
