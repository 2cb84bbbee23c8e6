"""Stored objects are gone, though their manifest lists them."""

import random

from testbed.faults.base import Fault, Scene
from testbed.faults.objects import Aside, pick_objects


class MissingObjects(Fault):
    """A share of the chunks' objects, each one level of one chunk."""

    hits_objects = True

    def begin(self, scene: Scene, chance: random.Random) -> str:
        """Take them out."""
        self._aside = Aside(scene.store)
        names = pick_objects(scene.store, "chunks/", self.share, chance)
        for name in names:
            self._aside.take(name)
        return f"{len(names)} objects gone, the first being {names[0]}"

    def end(self, scene: Scene) -> None:  # noqa: ARG002 - knows its files
        """Put them back."""
        self._aside.put_back()
