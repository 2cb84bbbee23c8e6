"""The link carries nothing, whatever its trace says."""

import random

from testbed.faults.base import Fault, Scene


class LinkDown(Fault):
    """The shaper's rate goes to its floor; what it is in force is part of the replay's log, so the run stays valid."""

    def begin(self, scene: Scene, chance: random.Random) -> str:  # noqa: ARG002 - leaves nothing to chance
        """Hold everything back."""
        scene.link.interrupt()
        return "the link is held at its lowest rate"

    def end(self, scene: Scene) -> None:
        """Follow the trace again."""
        scene.link.resume()
