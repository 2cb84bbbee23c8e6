"""Stored objects are gone, though their manifest lists them."""

import random

from testbed.faults.base import Fault, Scene
from testbed.faults.objects import Aside, first_of, pick_objects


class MissingObjects(Fault):
    """A share of the chunks' objects, each one level of one chunk."""

    hits_objects = True

    def begin(self, scene: Scene, chance: random.Random) -> str:
        """Take them out."""
        self._aside = Aside(scene.store)
        self._names = pick_objects(scene, "chunks/", self.share, chance)
        for name in self._names:
            self._aside.take(name)
        return f"{len(self._names)} objects gone, {first_of(self._names)}"

    def end(self, scene: Scene) -> None:
        """Put them back."""
        self._aside.put_back()
        scene.hit.difference_update(self._names)
