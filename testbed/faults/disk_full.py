"""The store's disk has no room left: what is stored is still served, and a write fails and leaves nothing.

Only a file system of the run's own may be filled up, so a plan with this fault keeps the store in a tmpfs, which is
made as small as what is in it.
"""

import os
import random
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cachegen import StoreError, open_store
from testbed.errors import HostError
from testbed.faults.base import Fault, Scene

_PROBE = "fault-probe"
_PROBE_BYTES = 1 << 18


class DiskFull(Fault):
    """Every write fails with ENOSPC."""

    def begin(self, scene: Scene, chance: random.Random) -> str:  # noqa: ARG002 - leaves nothing to chance
        """Take the room away, and see that a write says so."""
        scene.hold("disk")
        status = os.statvfs(scene.store)
        used_bytes = (status.f_blocks - status.f_bfree) * status.f_frsize
        _mount(f"remount,size={used_bytes + status.f_frsize}", scene.store)
        store = open_store(str(scene.store))
        try:
            store.put(_PROBE, bytes(_PROBE_BYTES))
        except StoreError as error:
            return f"no room left; a write says: {error}"
        store.delete(_PROBE)
        raise HostError("the fault disk-full did not fill the disk")

    def end(self, scene: Scene) -> None:
        """Give the room back."""
        if scene.release("disk"):
            _mount("remount,size=50%", scene.store)


@contextmanager
def disk_of_its_own(store: Path) -> Iterator[None]:
    """Keep the store in a file system of its own while the block lasts; to be called in private namespaces."""
    _mount("size=50%", store)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(store)], check=True)


def _mount(options: str, folder: Path) -> None:
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise HostError(f"mount -o {options} {folder}: {done.stderr.strip()}")
