"""The link carries nothing, whatever its trace says."""

import random

from testbed.faults.base import Fault, Scene


class LinkDown(Fault):
    """The shaper lets nothing through; that is a step of the replay's log, so the run stays valid."""

    def begin(self, scene: Scene, chance: random.Random) -> str:  # noqa: ARG002 - leaves nothing to chance
        """Hold everything back."""
        scene.hold("link")
        scene.link.interrupt()
        return "the link lets nothing through"

    def end(self, scene: Scene) -> None:
        """Follow the trace again."""
        if scene.release("link"):
            scene.link.resume()
