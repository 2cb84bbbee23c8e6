"""Where a loader reads objects from: over HTTP, byte by byte as they arrive, or out of any store."""

from cachegen.sources.base import Source
from cachegen.sources.http_source import HttpSource
from cachegen.sources.store_source import StoreSource
from cachegen.stores import open_store

__all__ = ["HttpSource", "Source", "StoreSource", "open_source"]


def open_source(url: str) -> Source:
    """Source for ``http://host:port`` or ``https://host:port``, or for any other store that ``open_store`` opens.

    Raises
    ------
    InvalidInputError, UnknownNameError, StoreUnavailableError
        As of ``HttpSource`` and ``open_store``.
    """
    scheme, _, _ = url.partition("://")
    return HttpSource(url) if scheme in {"http", "https"} else StoreSource(open_store(url))
