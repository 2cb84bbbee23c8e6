"""What a link does to frames behind its shaper, delay, jitter and loss: one interface for two backends."""

from collections.abc import Callable
from typing import Any, Protocol

from testbed.link_settings import Way

# Runs a command inside the delay node; returns its standard output, raises LinkError if it fails.
RunCommand = Callable[[list[str]], str]


class DelayBackend(Protocol):
    """Holds every frame for its way's delay, and loses the way's share of them."""

    name: str
    priority: str  # what the kernel allowed the delaying process, "kernel" where there is none

    def set_ms(self, down_ms: float, up_ms: float) -> None:
        """Change the delays of frames that arrive from now on."""

    def report(self) -> dict[str, Any]:
        """Return frames ``passed``, ``lost`` on purpose and ``drops`` by accident, each for ``down`` and ``up``.

        A backend that delays frames in a process adds ``late_ms``: how much later than due they left.
        """

    def close(self) -> None:
        """End it."""


WAY_NAMES = ("down", "up")
Ways = tuple[Way, Way]
