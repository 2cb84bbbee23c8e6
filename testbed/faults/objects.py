"""Which objects of a store a fault hits, and putting whole ones aside."""

import random
from pathlib import Path

from cachegen import open_store

# Where the file store keeps what is no object.
_ASIDE = ".tmp"


def pick_objects(store: Path, folder: str, share: float, chance: random.Random) -> list[str]:
    """Return the names of a share of the objects in one of a store's folders, like ``chunks/``; at least one."""
    names = open_store(str(store)).names(folder)
    return sorted(chance.sample(names, max(1, round(share * len(names)))))


class Aside:
    """Objects that were taken out of a store, to be put back.

    Parameters
    ----------
    store : Path
        The store's folder.
    """

    def __init__(self, store: Path) -> None:
        self._store = store
        self._moved: dict[Path, Path] = {}

    def take(self, name: str) -> Path:
        """Take an object out; return where it now lies."""
        path = self._store / name
        aside = self._store / _ASIDE / f"fault-{name.replace('/', '-')}"
        path.replace(aside)
        self._moved[path] = aside
        return aside

    def put_back(self) -> None:
        """Put everything back where it was."""
        for path, aside in self._moved.items():
            aside.replace(path)
        self._moved.clear()
