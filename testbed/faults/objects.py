"""Which objects of a store a fault hits, and putting whole ones aside."""

import random
from collections.abc import Sequence
from pathlib import Path

from cachegen import open_store
from testbed.faults.base import Scene

# Where the file store keeps what is no object.
_ASIDE = ".tmp"


def pick_objects(scene: Scene, folder: str, share: float, chance: random.Random) -> list[str]:
    """Return the names of a share of the objects in one of the store's folders, like ``chunks/``; at least one.

    They are taken from those that no other fault has hit, which may be fewer or none, and count as hit from now on.
    """
    names = open_store(str(scene.store)).names(folder)
    free = [name for name in names if name not in scene.hit]
    gone = [name for name in scene.hit if name.startswith(folder) and name not in names]
    count = max(1, round(share * (len(names) + len(gone))))
    picked = sorted(chance.sample(free, min(count, len(free))))
    scene.hit.update(picked)
    return picked


def first_of(names: Sequence[str]) -> str:
    """Return the end of a sentence on objects: which they are."""
    return f"the first being {names[0]}" if names else "for other faults have hit them all"


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
