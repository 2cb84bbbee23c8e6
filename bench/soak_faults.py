"""What a soak breaks: the server, the disk under its writers, the clock, and objects of every kind."""

import os
import random
import resource
import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from bench.soak_world import Server
from cachegen import open_store

# Smaller than any manifest: no write of an object succeeds.
_FULL_BYTES = 16
_JUMP_S = 2 * 86400.0


class Faults:
    """A thread that breaks something every now and then; a context manager.

    Parameters
    ----------
    root : Path
        Of the store.
    server : Server
        That serves it.
    seed : int
        Of what and when.
    foreign : sequence of bytes
        Chunks that another profile coded.
    writers : sequence of int
        Processes whose disk is full now and then.

    Attributes
    ----------
    counts : dict
        How often each kind was injected.
    """

    def __init__(self, root: Path, server: Server, seed: int, foreign: Sequence[bytes], writers: Sequence[int]) -> None:
        self._root, self._server, self._chance = root, server, random.Random(f"faults/{seed}")
        self._foreign, self._writers = foreign, writers
        self._kinds = {
            "kill -9 and restart": self._server.restart,
            "stall": self._stall,
            "flipped bit": self._flip,
            "missing object": self._remove,
            "foreign object": self._exchange,
            "damaged index": self._damage_index,
            "foreign profile": self._exchange_for_foreign,
            "disk full": self._fill_disk,
            "clock jump": self._jump,
        }
        self.counts = dict.fromkeys(self._kinds, 0)
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="faults")

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_error: object) -> None:
        """End; the server runs then."""
        self._ending.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ending.wait(self._chance.uniform(0.1, 1.5)):
            kind = self._chance.choice(list(self._kinds))
            self._kinds[kind]()
            self.counts[kind] += 1

    def _stall(self) -> None:
        self._server.process.send_signal(signal.SIGSTOP)
        self._ending.wait(self._chance.uniform(0.1, 3.0))
        self._server.process.send_signal(signal.SIGCONT)

    def _fill_disk(self) -> None:
        for pid in self._writers:
            _limit_files(pid, _FULL_BYTES)
        self._ending.wait(self._chance.uniform(0.1, 1.0))
        for pid in self._writers:
            _limit_files(pid, None)

    def _jump(self) -> None:
        """Give a context the time of use of a clock that stands days from the others'."""
        path = self._pick("used/")
        if path is not None:
            at_s = time.time() + self._chance.choice([-_JUMP_S, _JUMP_S])
            with suppress(FileNotFoundError):  # evicted meanwhile
                os.utime(path, (at_s, at_s))

    def _exchange_for_foreign(self) -> None:
        self._rewrite("chunks/", lambda _data: self._chance.choice(self._foreign))

    def _flip(self) -> None:
        self._rewrite("chunks/", lambda data: _flipped(data, self._chance))

    def _damage_index(self) -> None:
        self._rewrite(self._chance.choice(["manifests/", "tokens/"]), lambda data: _flipped(data, self._chance))

    def _exchange(self) -> None:
        foreign = self._pick("chunks/")
        if foreign is not None:
            other = foreign.read_bytes()
            self._rewrite("chunks/", lambda _data: other)

    def _remove(self) -> None:
        path = self._pick("chunks/")
        if path is not None:
            path.unlink(missing_ok=True)

    def _rewrite(self, prefix: str, change: Callable[[bytes], bytes]) -> None:
        path = self._pick(prefix)
        if path is not None:
            data = path.read_bytes() if path.exists() else b""
            if data:
                open_store(str(self._root)).put(str(path.relative_to(self._root)), change(data))

    def _pick(self, prefix: str) -> Path | None:
        names = open_store(str(self._root)).names(prefix)
        if not names:
            return None
        path = self._root / self._chance.choice(names)
        return path if path.exists() else None


def _flipped(data: bytes, chance: random.Random) -> bytes:
    changed = bytearray(data)
    changed[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def _limit_files(pid: int, num_bytes: int | None) -> None:
    """Let a process write no file beyond so many bytes, or any: its writes fail as on a full disk."""
    _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard if num_bytes is None else num_bytes, hard))
