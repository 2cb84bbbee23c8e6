"""The disk takes its time: the server answers in bursts with long pauses between them.

The server sends files from the loop that serves everyone, so a read that the disk delays stops the whole server, and
so does SIGSTOP. What is not shown by it: a disk so slow that opening a file takes longer than the server's limit.
"""

import random
import threading

from testbed.faults.base import STALLED, Fault, Scene

_STOPPED_S, _RUNNING_S = 0.2, 0.02


class SlowDisk(Fault):
    """SIGSTOP in bursts: for nine tenths of the time."""

    def __init__(self, share: float) -> None:
        super().__init__(share)
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self, scene: Scene, chance: random.Random) -> str:  # noqa: ARG002 - leaves nothing to chance
        """Stop and let go on by turns."""
        self._thread = threading.Thread(target=self._take_turns, args=(scene,), name="slow disk", daemon=True)
        self._thread.start()
        return f"stopped for {_STOPPED_S} s of every {_STOPPED_S + _RUNNING_S:.2f} s"

    def end(self, scene: Scene) -> None:
        """Let it go on for good."""
        self._ending.set()
        if self._thread is not None:
            self._thread.join()
        _let_go(scene)

    def _take_turns(self, scene: Scene) -> None:
        while not self._ending.is_set():
            scene.server.pause()
            self._ending.wait(_STOPPED_S)
            _let_go(scene)
            self._ending.wait(_RUNNING_S)


def _let_go(scene: Scene) -> None:
    # a stall at the same time lasts on
    if not scene.held[STALLED]:
        scene.server.unpause()
