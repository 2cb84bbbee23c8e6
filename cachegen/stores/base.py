"""What a store is, and which names its objects may have."""

import re
from collections.abc import Generator
from dataclasses import dataclass
from typing import Protocol

from cachegen.errors import InvalidInputError

MAX_NAME_LENGTH = 512

# No segment is empty or starts with a dot (so neither ".." nor a hidden file), and none has a character that
# a file system or a URL would read otherwise than as it stands.
_SEGMENT = r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}"
_NAME = re.compile(rf"{_SEGMENT}(?:/{_SEGMENT})*")


@dataclass(frozen=True)
class StoredObject:
    """What a store knows of an object without reading it.

    Parameters
    ----------
    name, size_bytes
        As ``Store.names`` and ``Store.size`` give them.
    modified_s
        When it was put, in seconds by the store's own clock: comparable within one store, and with no other clock.
    """

    name: str
    size_bytes: int
    modified_s: float


class Store(Protocol):
    """Named objects of bytes. An object is there whole or not at all. Safe for threads and for concurrent writers.

    Every method raises ``InvalidInputError`` for a name that ``check_name`` refuses, and
    ``StoreUnavailableError`` when the store does not answer. ``get``, ``read``, ``size`` and ``delete`` raise
    ``ObjectNotFoundError`` when there is no such object.
    """

    def put(self, name: str, data: bytes) -> None:
        """Publish ``data`` under ``name``; readers see the old object or the new one, never a part."""
        ...

    def put_new(self, name: str, data: bytes) -> bool:
        """Publish ``data`` unless there is an object ``name``; return whether it was. Of two at once, one succeeds."""
        ...

    def touch(self, name: str) -> None:
        """Put an object of no bytes, for the time of its put; unlike a put, it may be lost by a power cut."""
        ...

    def get(self, name: str, start: int = 0, end: int | None = None) -> bytes:
        """Return ``data[start:end]`` of the object, ``start`` and ``end`` not being negative."""
        ...

    def read(self, name: str, end: int) -> Generator[bytes, None, None]:
        """Yield ``data[:end]`` of the object piece by piece, as it arrives; no piece is empty.

        To close the generator ends the transfer. All pieces are of one object: where it is replaced or removed
        meanwhile, they are those of the old one, or ``StoreUnavailableError`` is raised. Errors come with the first
        piece or later, not by the call.
        """
        ...

    def size(self, name: str) -> int:
        """Return the object's size in bytes."""
        ...

    def names(self, prefix: str = "") -> list[str]:
        """Return the names of all objects whose name starts with ``prefix``, sorted."""
        ...

    def entries(self, prefix: str = "") -> list[StoredObject]:
        """Return what ``names`` lists, each with its size and the time of its put, sorted by name."""
        ...

    def delete(self, name: str) -> None:
        """Remove the object."""
        ...


def is_name(name: str) -> bool:
    """Whether this is an object name: segments of ``A-Za-z0-9._-`` between slashes.

    No segment is empty, starts with a dot or has more than 128 characters; the whole has at most 512.
    """
    return len(name) <= MAX_NAME_LENGTH and _NAME.fullmatch(name) is not None


def check_name(name: str) -> None:
    """Refuse what ``is_name`` denies.

    Raises
    ------
    InvalidInputError
        Not an object name.
    """
    if not is_name(name):
        shown = repr(name) if len(name) <= 80 else f"{name[:77]!r}..."
        raise InvalidInputError(f"{shown} is not an object name")


def check_range(start: int, end: int | None) -> None:
    """Refuse a range that is none.

    Raises
    ------
    InvalidInputError
        ``start`` is negative, or ``end`` lies before it.
    """
    if start < 0 or (end is not None and end < start):
        raise InvalidInputError(f"bytes {start} to {end} are no range")
