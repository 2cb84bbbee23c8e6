"""The storage server stands still: connections are open and silent."""

import random

from testbed.faults.base import Fault, Scene


class StallServer(Fault):
    """SIGSTOP; the kernel still takes connections in its name."""

    def begin(self, scene: Scene, chance: random.Random) -> str:  # noqa: ARG002 - leaves nothing to chance
        """Stop it."""
        scene.server.pause()
        return "stopped with SIGSTOP"

    def end(self, scene: Scene) -> None:
        """Let it go on."""
        scene.server.unpause()
