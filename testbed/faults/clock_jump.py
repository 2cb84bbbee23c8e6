"""The wall clock jumps an hour ahead, and back."""

import random

from testbed.faults.base import Fault, Scene

_JUMP_S = 3600


class ClockJump(Fault):
    """Both programs see another time of day; nothing that a load does may hang on it."""

    def begin(self, scene: Scene, chance: random.Random) -> str:  # noqa: ARG002 - leaves nothing to chance
        """Jump ahead."""
        assert scene.clock is not None, "a plan with this fault gives the programs a clock"
        scene.hold("clock")
        scene.clock.set(_JUMP_S)
        return f"the wall clock jumps by {_JUMP_S} s"

    def end(self, scene: Scene) -> None:
        """Jump back."""
        assert scene.clock is not None, "as it began"
        if scene.release("clock"):
            scene.clock.set(0)
