"""A store in this process's memory, shared by all who open its name; gone with the process."""

import threading
import time
from collections.abc import Generator

from cachegen.errors import ObjectNotFoundError
from cachegen.stores.base import StoredObject, check_name, check_range

_shared: dict[str, "MemoryStore"] = {}
_sharing = threading.Lock()


def shared_memory_store(name: str) -> "MemoryStore":
    """Return the store of this name, made by whoever asks for it first."""
    with _sharing:
        return _shared.setdefault(name, MemoryStore())


class MemoryStore:
    """Objects in a dictionary; a put replaces a reference, so readers keep the bytes they have."""

    def __init__(self) -> None:
        self._objects: dict[str, tuple[bytes, float]] = {}
        # a single look-up or assignment needs no lock; walking the dictionary while it changes does
        self._changing = threading.Lock()

    def put(self, name: str, data: bytes) -> None:
        """See ``Store.put``."""
        check_name(name)
        with self._changing:
            self._objects[name] = (bytes(data), time.time())

    def put_new(self, name: str, data: bytes) -> bool:
        """See ``Store.put_new``."""
        check_name(name)
        new = (bytes(data), time.time())
        with self._changing:
            return self._objects.setdefault(name, new) is new

    def touch(self, name: str) -> None:
        """See ``Store.touch``."""
        self.put(name, b"")

    def get(self, name: str, start: int = 0, end: int | None = None) -> bytes:
        """See ``Store.get``."""
        check_range(start, end)
        return self._data(name)[start:end]

    def read(self, name: str, end: int) -> Generator[bytes, None, None]:
        """See ``Store.read``; one piece."""
        if data := self.get(name, 0, end):
            yield data

    def size(self, name: str) -> int:
        """See ``Store.size``."""
        return len(self._data(name))

    def names(self, prefix: str = "") -> list[str]:
        """See ``Store.names``."""
        return [entry.name for entry in self.entries(prefix)]

    def entries(self, prefix: str = "") -> list[StoredObject]:
        """See ``Store.entries``."""
        with self._changing:
            return [
                StoredObject(name, len(data), modified_s)
                for name, (data, modified_s) in sorted(self._objects.items())
                if name.startswith(prefix)
            ]

    def delete(self, name: str) -> None:
        """See ``Store.delete``."""
        self._data(name)
        with self._changing:
            self._objects.pop(name, None)

    def _data(self, name: str) -> bytes:
        check_name(name)
        try:
            return self._objects[name][0]
        except KeyError as error:
            raise ObjectNotFoundError(f"{name}: no such object") from error
