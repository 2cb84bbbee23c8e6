"""The stores by URL scheme: where the objects of contexts are kept. (What a server gives out is read by a source.)"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from urllib.parse import unquote, urlsplit

from cachegen.errors import InvalidInputError, UnknownNameError
from cachegen.stores.base import Store, StoredObject, check_name, is_name
from cachegen.stores.file_store import FileStore
from cachegen.stores.memory_store import shared_memory_store
from cachegen.stores.publish import publish_context, record_use
from cachegen.stores.uses import UseRecorder

__all__ = [
    "STORES",
    "FileStore",
    "Store",
    "StoredObject",
    "UseRecorder",
    "check_name",
    "open_store",
    "publish_context",
    "record_use",
]


def _open_file_store(url: str) -> Store:
    parts = urlsplit(url)
    if parts.netloc not in {"", "localhost"} or not parts.path:
        raise InvalidInputError(f"{url}: a folder of this machine is file:///FOLDER")
    return FileStore(unquote(parts.path))


def _open_memory_store(url: str) -> Store:
    name = url.removeprefix("memory://")
    if not is_name(name):
        raise InvalidInputError(f"{url}: a store in memory is memory://NAME")
    return shared_memory_store(name)


def _open_redis_store(url: str) -> Store:
    with _extra_for("Redis", "redis"):
        from cachegen.stores.redis_client import connect
        from cachegen.stores.redis_store import RedisStore
    return RedisStore(connect(url))


def _open_s3_store(url: str) -> Store:
    with _extra_for("S3", "s3"):
        from cachegen.stores.s3_store import open_s3
    return open_s3(url)


@contextmanager
def _extra_for(store: str, extra: str) -> Iterator[None]:
    """Say what to install where an optional client is missing."""
    try:
        yield
    except ImportError as error:
        raise InvalidInputError(f"a store in {store} needs `pip install cachegen[{extra}]` ({error})") from error


# Each opener takes the whole URL.
STORES: dict[str, Callable[[str], Store]] = {
    "file": _open_file_store,
    "memory": _open_memory_store,
    "redis": _open_redis_store,
    "rediss": _open_redis_store,
    "redis+cluster": _open_redis_store,
    "rediss+cluster": _open_redis_store,
    "s3": _open_s3_store,
}


def open_store(url: str) -> Store:
    """Open the store at a URL (``docs/stores.md`` lists them), or the folder at a path.

    Raises
    ------
    UnknownNameError
        A scheme that ``STORES`` does not know.
    InvalidInputError
        A URL that its store cannot use, or a store whose client is not installed.
    StoreUnavailableError
        A cluster of which no node answers; other stores are reached when they are first used.
    """
    scheme, separator, _ = url.partition("://")
    if not separator:
        return FileStore(url)
    # not the whole URL in what follows, which may hold a password
    if scheme not in STORES:
        raise UnknownNameError(f"no store for {scheme}://; there are {', '.join(sorted(STORES))}")
    try:
        urlsplit(url)
    except ValueError as error:
        raise InvalidInputError(f"{scheme}://...: no URL: {error}") from error
    return STORES[scheme](url)
