"""The storage server is killed, and started again when the fault ends."""

import random

from testbed.faults.base import STALLED, Fault, Scene


class KillServer(Fault):
    """SIGKILL: connections break, and others are refused until it is back."""

    def begin(self, scene: Scene, chance: random.Random) -> str:  # noqa: ARG002 - leaves nothing to chance
        """Kill it."""
        scene.hold("killed server")
        scene.server.kill()
        return "killed with SIGKILL"

    def end(self, scene: Scene) -> None:
        """Start it on the same port, and as still as the one before it was."""
        if scene.release("killed server"):
            scene.server.restart()
            if scene.held[STALLED]:
                scene.server.pause()
