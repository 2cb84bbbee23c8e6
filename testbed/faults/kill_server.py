"""The storage server is killed, and started again when the fault ends."""

import random

from testbed.faults.base import Fault, Scene


class KillServer(Fault):
    """SIGKILL: connections break, and others are refused until it is back."""

    def begin(self, scene: Scene, chance: random.Random) -> str:  # noqa: ARG002 - leaves nothing to chance
        """Kill it."""
        scene.server.kill()
        return "killed with SIGKILL"

    def end(self, scene: Scene) -> None:
        """Start it on the same port."""
        scene.server.restart()
