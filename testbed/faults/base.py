"""What a fault is, and what it acts on."""

import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Protocol

from testbed.faults.fake_clock import FakeClock

# What a stalled server is held in, whatever else happens to it meanwhile.
STALLED = "stalled server"


class FaultyServer(Protocol):
    """The storage server, as far as faults go."""

    def kill(self) -> None:
        """End it with SIGKILL."""

    def restart(self) -> None:
        """Start it anew where it listened before."""

    def pause(self) -> None:
        """Stop it with SIGSTOP."""

    def unpause(self) -> None:
        """Let it go on with SIGCONT."""


class FaultyLink(Protocol):
    """The emulated link, as far as faults go."""

    def interrupt(self) -> None:
        """Let nothing pass, whatever the trace says."""

    def resume(self) -> None:
        """Follow the trace again."""


@dataclass(frozen=True)
class Scene:
    """What there is to break.

    Parameters
    ----------
    server, link
        Of the run.
    store : Path
        Folder that the server serves.
    clock : FakeClock or None
        Of the run's programs; only there if a fault of the plan needs it.
    held : Counter
        How many of the faults that are going on hold a thing in the same state: it is let go by the last of them.
    hit : set of str
        Objects that a fault has changed and not yet mended; no other one touches them.
    """

    server: FaultyServer
    link: FaultyLink
    store: Path
    clock: FakeClock | None = None
    held: Counter[str] = field(default_factory=Counter)
    hit: set[str] = field(default_factory=set)

    def hold(self, what: str) -> None:
        """Note that one more fault holds this."""
        self.held[what] += 1

    def release(self, what: str) -> bool:
        """Note that one holds it no more; return whether that was the last."""
        self.held[what] -= 1
        return self.held[what] == 0


class Fault:
    """One fault during one request; made anew for each.

    Parameters
    ----------
    share : float
        Of the objects that it hits, where it hits objects.
    """

    hits_objects: ClassVar[bool] = False

    def __init__(self, share: float) -> None:
        self.share = share

    def begin(self, scene: Scene, chance: random.Random) -> str:
        """Break something; return a few words for the event log."""
        raise NotImplementedError

    def end(self, scene: Scene) -> None:
        """Mend it."""
        raise NotImplementedError
