"""The storage server stands still: connections are open and silent."""

import random

from testbed.faults.base import STALLED, Fault, Scene


class StallServer(Fault):
    """SIGSTOP; the kernel still takes connections in its name."""

    def begin(self, scene: Scene, chance: random.Random) -> str:  # noqa: ARG002 - leaves nothing to chance
        """Stop it."""
        scene.hold(STALLED)
        scene.server.pause()
        return "stopped with SIGSTOP"

    def end(self, scene: Scene) -> None:
        """Let it go on."""
        if scene.release(STALLED):
            scene.server.unpause()
