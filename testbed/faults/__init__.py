"""Faults that a run injects for real, by name: what breaks in the field, at a moment that nobody announces."""

from testbed.faults.base import Fault, Scene
from testbed.faults.clock_jump import ClockJump
from testbed.faults.corrupt import CorruptManifests, CorruptObjects, CorruptTokens
from testbed.faults.disk_full import DiskFull
from testbed.faults.foreign import ForeignChunks, ForeignProfile
from testbed.faults.kill_server import KillServer
from testbed.faults.link_down import LinkDown
from testbed.faults.missing import MissingObjects
from testbed.faults.slow_disk import SlowDisk
from testbed.faults.stall_server import StallServer

__all__ = ["FAULTS", "Fault", "Scene"]

FAULTS: dict[str, type[Fault]] = {
    "kill-server": KillServer,
    "stall-server": StallServer,
    "slow-disk": SlowDisk,
    "link-down": LinkDown,
    "corrupt": CorruptObjects,
    "corrupt-manifest": CorruptManifests,
    "corrupt-tokens": CorruptTokens,
    "missing": MissingObjects,
    "foreign-chunk": ForeignChunks,
    "foreign-profile": ForeignProfile,
    "disk-full": DiskFull,
    "clock-jump": ClockJump,
}
