"""A cache near the inference host that holds some of the store's objects, and the source that asks it first."""

import os
import random
from collections.abc import Callable
from pathlib import Path

from cachegen import ObjectNotFoundError, Source

_KINDS = ("chunks", "manifests", "tokens")


def fill_near_cache(store: Path, cache: Path, share: float, seed: int) -> dict[str, int]:
    """Link a share of the store's objects into the cache's folder.

    Parameters
    ----------
    store, cache : Path
        Folders, on one file system.
    share : float
        Probability for each key: a chunk is held in all of its encodings or in none, and manifest and tokens of a
        context have its last chunk's key.

    Returns
    -------
    dict
        ``keys`` of the store, and ``near_keys``, those that the cache holds.
    """
    cache.mkdir()
    held: dict[str, bool] = {}
    objects = (path for kind in _KINDS for path in (store / kind).rglob("*") if path.is_file())
    for path in sorted(objects):
        name = path.relative_to(store)
        # chunks/ab/KEY/encoding, manifests/ab/KEY, tokens/ab/KEY
        key = name.parts[2]
        if held.setdefault(key, random.Random(f"near cache/{seed}/{key}").random() < share):
            (cache / name).parent.mkdir(parents=True, exist_ok=True)
            os.link(path, cache / name)
    return {"keys": len(held), "near_keys": sum(held.values())}


class NearFirstSource:
    """Asks the near server, and the far one for what that does not hold.

    Parameters
    ----------
    near, far : Source
        Both are closed with this one.

    Attributes
    ----------
    received_bytes : int
        From both.
    near_bytes : int
        From the near one.
    """

    def __init__(self, near: Source, far: Source) -> None:
        self._near, self._far = near, far
        self.received_bytes = 0

    @property
    def near_bytes(self) -> int:
        """Of ``received_bytes``, those from the near server."""
        return self._near.received_bytes

    async def fetch(
        self,
        name: str,
        max_bytes: int,
        on_first_byte: Callable[[], None],
        *,
        on_bytes: Callable[[int], None] | None = None,
    ) -> bytes:
        """See ``cachegen.Source.fetch``; errors other than a miss are the near server's own and stay errors."""
        try:
            try:
                return await self._near.fetch(name, max_bytes, on_first_byte, on_bytes=on_bytes)
            except ObjectNotFoundError:
                return await self._far.fetch(name, max_bytes, on_first_byte, on_bytes=on_bytes)
        finally:
            self.received_bytes = self._near.received_bytes + self._far.received_bytes

    async def close(self) -> None:
        """Give up the connections to both."""
        await self._near.close()
        await self._far.close()
