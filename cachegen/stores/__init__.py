"""The stores by URL scheme: where the objects of contexts are kept. (What a server gives out is read by a source.)"""

from collections.abc import Callable
from urllib.parse import unquote, urlsplit

from cachegen.errors import InvalidInputError, UnknownNameError
from cachegen.stores.base import Store, check_name
from cachegen.stores.file_store import FileStore
from cachegen.stores.publish import publish_context

__all__ = ["STORES", "FileStore", "Store", "check_name", "open_store", "publish_context"]


def _open_file_store(url: str) -> Store:
    parts = urlsplit(url)
    if parts.netloc not in {"", "localhost"} or not parts.path:
        raise InvalidInputError(f"{url}: a folder of this machine is file:///FOLDER")
    return FileStore(unquote(parts.path))


# Each opener takes the whole URL.
STORES: dict[str, Callable[[str], Store]] = {
    "file": _open_file_store,
}


def open_store(url: str) -> Store:
    """Open the store at ``url``: ``file:///folder``, or the path of a folder.

    Raises
    ------
    UnknownNameError
        A scheme that ``STORES`` does not know.
    InvalidInputError
        A URL that its store cannot use.
    """
    scheme, separator, _ = url.partition("://")
    if not separator:
        return FileStore(url)
    if scheme not in STORES:
        raise UnknownNameError(f"{url}: no store for {scheme}://; there are {', '.join(sorted(STORES))}")
    return STORES[scheme](url)
