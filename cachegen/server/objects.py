"""Answering with an object, or a range of it, straight from its file to the socket."""

import asyncio
import errno
import io
import logging
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO, TypeVar

from aiohttp import hdrs, web

from cachegen.errors import InvalidInputError, ObjectNotFoundError, StoreUnavailableError
from cachegen.server.metrics import ServerMetrics
from cachegen.server.selection import select
from cachegen.stores import FileStore, UseRecorder

# What a client has to take within the stall limit; each piece costs the server a quarter of a millisecond.
_PIECE_BYTES = 1 << 20
# A disk that has not answered by then is as good as broken, and the client may have time left for another plan.
_DISK_S = 10.0

_LOG = logging.getLogger("cachegen.server")
_T = TypeVar("_T")


@dataclass(frozen=True)
class ObjectHandler:
    """Answers ``GET`` and ``HEAD`` of ``/v1/objects/{name}``; each piece is to be taken in ``stall_s``."""

    store: FileStore
    stall_s: float
    metrics: ServerMetrics
    uses: UseRecorder

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Return the answer, sent already where it has a body."""
        name = request.match_info["name"]
        try:
            file = await ask_disk(lambda: _open_object(self.store, name))
        except InvalidInputError as error:
            return web.Response(status=400, text=f"{error}\n")
        except ObjectNotFoundError:
            return web.Response(status=404, text="no such object\n")
        except StoreUnavailableError as error:
            self._note_disk(name, error)
            return web.Response(status=503, text=f"the store's disk fails: {_cause(error)}\n")
        if request.method == hdrs.METH_GET:
            self.uses.note(name)
        with file:
            return await self._send(request, name, file)

    async def _send(self, request: web.Request, name: str, file: BinaryIO) -> web.StreamResponse:
        status = os.fstat(file.fileno())
        etag = f'"{status.st_ino:x}-{status.st_mtime_ns:x}-{status.st_size:x}"'
        selection = select(status.st_size, etag, {key.title(): value for key, value in request.headers.items()})
        headers = {hdrs.ETAG: etag, hdrs.ACCEPT_RANGES: "bytes"}
        if selection.status == 416:
            headers[hdrs.CONTENT_RANGE] = f"bytes */{status.st_size}"
        if selection.status not in {200, 206}:
            return web.Response(status=selection.status, headers=headers)
        if selection.status == 206:
            headers[hdrs.CONTENT_RANGE] = f"bytes {selection.start}-{selection.end - 1}/{status.st_size}"
        response = web.StreamResponse(status=selection.status, headers=headers)
        response.content_type = "application/octet-stream"
        response.content_length = selection.end - selection.start
        await response.prepare(request)
        if request.method == hdrs.METH_GET:
            try:
                await self._send_pieces(request, file, selection.start, selection.end)
            except (TimeoutError, StoreUnavailableError, OSError) as error:
                self._cut(request, name, error)
        return response

    async def _send_pieces(self, request: web.Request, file: BinaryIO, start: int, end: int) -> None:
        loop, transport = asyncio.get_running_loop(), request.transport
        while start < end:
            if transport is None or transport.is_closing():
                raise ConnectionResetError("the client is gone")
            async with asyncio.timeout(self.stall_s):
                sent = await loop.sendfile(transport, file, start, min(_PIECE_BYTES, end - start))
            if not sent:
                raise StoreUnavailableError("the file has become shorter")
            self.metrics.sent_bytes += sent
            start += sent

    def _cut(self, request: web.Request, name: str, error: Exception) -> None:
        """End a transfer that cannot be completed; the client sees that the object is not whole."""
        if isinstance(error, TimeoutError):
            self.metrics.cut_transfers += 1
        elif not isinstance(error, ConnectionError):
            self._note_disk(name, error)
        if request.transport is not None:
            request.transport.abort()

    def _note_disk(self, name: str, error: Exception) -> None:
        self.metrics.disk_errors += 1
        _LOG.warning("%s: %s", name, error)


async def ask_disk(call: Callable[[], _T]) -> _T:
    """Run a call that touches the disk, which may be slow, outside of the loop that serves everyone.

    Raises
    ------
    StoreUnavailableError
        The disk does not answer in time, besides what the call raises.
    """
    work = asyncio.get_running_loop().run_in_executor(None, call)
    try:
        await asyncio.wait([work], timeout=_DISK_S)
    finally:
        if not work.done():
            work.add_done_callback(_drop)
    if not work.done():
        raise StoreUnavailableError(f"no answer within {_DISK_S} s")
    return work.result()


def _drop(work: asyncio.Future[_T]) -> None:
    """Close a file that comes when nobody waits for it any more; an error that comes then is seen so."""
    if not work.cancelled() and work.exception() is None and isinstance(result := work.result(), io.IOBase):
        result.close()


def _open_object(store: FileStore, name: str) -> BinaryIO:
    path = store.path(name)
    try:
        # the file that was checked: not a link that took its place since, nor a pipe, which would wait for a writer
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        if error.errno in {errno.ENOENT, errno.ELOOP}:
            raise ObjectNotFoundError(f"{path}: no such object") from error
        raise StoreUnavailableError(f"{path}: {error.strerror}") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ObjectNotFoundError(f"{path}: no such object")
    return os.fdopen(descriptor, "rb", buffering=0)


def _cause(error: StoreUnavailableError) -> str:
    """Return what the system says, without the path, which is no business of a client's."""
    return getattr(error.__cause__, "strerror", None) or "no answer"
