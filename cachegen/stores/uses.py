"""Recording when contexts are used, off the way of those who read them."""

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from cachegen.errors import StoreError
from cachegen.manifest import manifest_name
from cachegen.stores.base import Store
from cachegen.stores.publish import record_use

# Eviction tells contexts apart by hours; a context that is read all the time costs the store this little.
_ONCE_IN_S = 60.0
# Beyond so many contexts, those that are due anyway are forgotten.
_REMEMBERED = 4096

_LOG = logging.getLogger("cachegen.stores")
# Nobody needs to hear of each use, nor of each reader in a process, that a store lets nobody write.
_warned = threading.Event()


class UseRecorder:
    """Records the uses of contexts by the reads of their manifests, once a minute for each, in a thread of its own.

    A store that cannot be written to is read all the same: its refusals are counted, and the first one in a process is
    a warning in the log.

    Parameters
    ----------
    store : Store
        That is read.
    clock : callable
        Seconds that nobody sets.

    Attributes
    ----------
    recorded, refused : int
        Uses that the store has a record of, and those that it has not.
    """

    def __init__(self, store: Store, clock: Callable[[], float] = time.monotonic) -> None:
        self.recorded = self.refused = 0
        self._store, self._clock = store, clock
        self._noted_s: dict[bytes, float] = {}
        self._closed = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="uses")

    def note(self, name: str) -> None:
        """Take note that an object was read; returns at once. What is no manifest is no context's use."""
        context_key, now_s = _context_key(name), self._clock()
        if self._closed or context_key is None or now_s - self._noted_s.get(context_key, -_ONCE_IN_S) < _ONCE_IN_S:
            return
        if len(self._noted_s) >= _REMEMBERED:
            self._noted_s = {key: at_s for key, at_s in self._noted_s.items() if now_s - at_s < _ONCE_IN_S}
        self._noted_s[context_key] = now_s
        self._thread.submit(self._record, context_key)

    def _record(self, context_key: bytes) -> None:
        try:
            record_use(self._store, context_key)
        except StoreError as error:
            self.refused += 1
            if not _warned.is_set():
                _warned.set()
                _LOG.warning("uses of contexts are not recorded, so eviction does not know them: %s", error)
        else:
            self.recorded += 1

    def close(self) -> None:
        """Take no more notes; those taken are recorded in their own time."""
        self._closed = True
        self._thread.shutdown(wait=False)


def _context_key(name: str) -> bytes | None:
    try:
        key = bytes.fromhex(name.rpartition("/")[2])
        return key if name == manifest_name(key) else None
    except ValueError:  # no digits of a key, or not as many as it has
        return None
