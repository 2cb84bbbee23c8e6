"""Delay, jitter and loss by the relay process, on kernels without netem."""

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from testbed.delay import Ways
from testbed.errors import LinkError

# Starts a process inside the delay node with these keyword arguments of subprocess.Popen.
StartProcess = Callable[..., subprocess.Popen[bytes]]

ANSWER_TIMEOUT_S = 10.0


class RelayDelay:
    """The relay process, started in the delay node and spoken to by lines.

    Parameters
    ----------
    start : callable
        Starts a process in the node.
    interfaces : tuple of str
        Towards the sender, towards the receiver.
    ways : tuple of Way
        Down and up.
    """

    name = "relay"

    def __init__(self, start: StartProcess, interfaces: tuple[str, str], ways: Ways) -> None:
        command = [sys.executable, "-P", "-m", "testbed.relay", *interfaces, json.dumps([asdict(way) for way in ways])]
        self._process = start(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0)
        self._unread = b""
        self.priority = str(self._answer()["priority"])

    def set_ms(self, down_ms: float, up_ms: float) -> None:
        """Change the delays of frames that arrive from now on."""
        self._send(f"delay {float(down_ms)!r} {float(up_ms)!r}\n")

    def report(self) -> dict[str, Any]:
        """Return frames passed, lost and dropped for each way, and the lateness of frames in ms."""
        self._send("report\n")
        return self._answer()

    def close(self) -> None:
        """End the process."""
        with self._process as process:
            assert process.stdin is not None  # it was opened as a pipe
            process.stdin.close()
            try:
                process.wait(ANSWER_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()

    def _send(self, line: str) -> None:
        assert self._process.stdin is not None  # it was opened as a pipe
        try:
            self._process.stdin.write(line.encode())
        except BrokenPipeError:
            raise self._gone() from None

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None  # it was opened as a pipe
        fd = self._process.stdout.fileno()
        deadline_s = time.monotonic() + ANSWER_TIMEOUT_S
        while b"\n" not in self._unread:
            readable, _, _ = select.select([fd], [], [], max(0.0, deadline_s - time.monotonic()))
            if not readable:
                raise LinkError(f"the delay relay gave no answer within {ANSWER_TIMEOUT_S:g} s")
            data = os.read(fd, 65536)
            if not data:
                raise self._gone()
            self._unread += data
        line, _, self._unread = self._unread.partition(b"\n")
        return dict(json.loads(line))

    def _gone(self) -> LinkError:
        with self._process as process:
            assert process.stderr is not None  # it was opened as a pipe
            process.kill()  # if it is still ending
            last = process.stderr.read().decode(errors="replace").strip().splitlines()[-1:]
        return LinkError(f"the delay relay has ended: {last[0] if last else 'it left no message'}")
