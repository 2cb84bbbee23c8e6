"""Bytes of stored objects change on the disk."""

import random
from pathlib import Path
from typing import ClassVar

from testbed.faults.base import Fault, Scene
from testbed.faults.objects import first_of, pick_objects


class CorruptObjects(Fault):
    """One bit flips in each of a share of the chunks' objects, anywhere in it."""

    hits_objects = True
    folder: ClassVar[str] = "chunks/"

    def __init__(self, share: float) -> None:
        super().__init__(share)
        self._names: list[str] = []
        self._flipped: list[tuple[Path, int, int]] = []

    def begin(self, scene: Scene, chance: random.Random) -> str:
        """Flip."""
        self._names = pick_objects(scene, self.folder, self.share, chance)
        for name in self._names:
            path = scene.store / name
            flip = path, chance.randrange(path.stat().st_size), 1 << chance.randrange(8)
            self._flipped.append(flip)
            _flip(*flip)
        return f"a bit flipped in {len(self._names)} objects, {first_of(self._names)}"

    def end(self, scene: Scene) -> None:
        """Flip back."""
        for flip in self._flipped:
            _flip(*flip)
        scene.hit.difference_update(self._names)


class CorruptManifests(CorruptObjects):
    """The same in contexts' manifests."""

    folder = "manifests/"


class CorruptTokens(CorruptObjects):
    """The same in contexts' tokens."""

    folder = "tokens/"


def _flip(path: Path, place: int, mask: int) -> None:
    # in place: a rewritten file would be another one to a server that has it open
    with path.open("r+b") as file:
        file.seek(place)
        (byte,) = file.read(1)
        file.seek(place)
        file.write(bytes([byte ^ mask]))
