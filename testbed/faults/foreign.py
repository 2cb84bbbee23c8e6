"""Valid objects in the wrong place: of another chunk, or of a context whose profile is another."""

import json
import random
import shutil

from cachegen import open_store
from testbed.faults.base import Fault, Scene
from testbed.faults.objects import Aside, first_of, pick_objects


class ForeignChunks(Fault):
    """In place of each of a share of the chunks' objects lies that of another chunk, in the same encoding."""

    hits_objects = True

    def begin(self, scene: Scene, chance: random.Random) -> str:
        """Exchange them."""
        self._aside = Aside(scene.store)
        self._names = names = pick_objects(scene, "chunks/", self.share, chance)
        sources = {name: self._other(scene, name, chance) for name in names}
        taken = {name: self._aside.take(name) for name in names}
        for name, source in sources.items():
            shutil.copyfile(taken.get(source, scene.store / source), scene.store / name)
        return f"{len(names)} objects replaced by another chunk's, {first_of(names)}"

    def end(self, scene: Scene) -> None:
        """Put the right ones back."""
        self._aside.put_back()
        scene.hit.difference_update(self._names)

    def _other(self, scene: Scene, name: str, chance: random.Random) -> str:
        encoding = name.rpartition("/")[2]
        # as they should be, and none that another fault has hit
        names = [
            other
            for other in open_store(str(scene.store)).names("chunks/")
            if other not in scene.hit or other in self._names
        ]
        others = [other for other in names if other != name and other.rpartition("/")[2] == encoding]
        return chance.choice(others) if others else name


class ForeignProfile(Fault):
    """All manifests say that another profile's tables coded their chunks."""

    def begin(self, scene: Scene, chance: random.Random) -> str:
        """Rewrite them."""
        store = open_store(str(scene.store))
        self._before = {name: store.get(name) for name in pick_objects(scene, "manifests/", 1.0, chance)}
        for name, data in self._before.items():
            manifest = json.loads(data) | {"profile_hash": chance.randbytes(32).hex()}
            store.put(name, json.dumps(manifest).encode())
        return f"another profile in {len(self._before)} manifests"

    def end(self, scene: Scene) -> None:
        """Write the right ones."""
        for name, data in self._before.items():
            open_store(str(scene.store)).put(name, data)
        scene.hit.difference_update(self._before)
