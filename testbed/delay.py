"""The propagation delay of a link: by the kernel's netem where it has one, else by the relay process."""

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any, Protocol

from testbed.errors import LinkError

# Runs a command inside the delay node; returns its standard output, raises LinkError if it fails.
RunCommand = Callable[[list[str]], str]
# Starts a process inside the delay node with these keyword arguments of subprocess.Popen.
StartProcess = Callable[..., subprocess.Popen[bytes]]

BRIDGE = "wire-br"
NETEM_LIMIT_PACKETS = 100_000  # more than any delay here can hold; a full netem would be a hidden queue limit
NETEM_TOLERANCE_MS = 0.01
ANSWER_TIMEOUT_S = 10.0


class DelayBackend(Protocol):
    """Holds every frame for a one-way delay, in both directions."""

    name: str
    priority: str  # what the kernel allowed the delaying process, "kernel" where there is none

    def set_ms(self, delay_ms: float) -> None:
        """Change the delay of frames that arrive from now on."""

    def report(self) -> dict[str, Any]:
        """Return frames passed and frames lost per interface, and what else the backend knows."""

    def close(self) -> None:
        """End it."""


class NetemDelay:
    """A bridge between the two interfaces with netem on the outgoing side of both."""

    name = "netem"
    priority = "kernel"

    def __init__(self, run: RunCommand, interfaces: tuple[str, str], delay_ms: float) -> None:
        self._run = run
        self._interfaces = interfaces
        for command in bridge_commands(interfaces):
            run(command)
        for interface in interfaces:
            run(netem_command("add", interface, delay_ms))
        self._check(delay_ms)

    def set_ms(self, delay_ms: float) -> None:
        """Change the delay of frames that arrive from now on."""
        for interface in self._interfaces:
            self._run(netem_command("change", interface, delay_ms))

    def report(self) -> dict[str, Any]:
        """Return frames passed and frames lost per outgoing interface."""
        stats = {name: self._qdisc(name) for name in self._interfaces}
        return {
            "frames": {name: int(qdisc["packets"]) for name, qdisc in stats.items()},
            "drops": {name: int(qdisc["drops"]) for name, qdisc in stats.items()},
        }

    def close(self) -> None:
        """Do nothing: netem ends with its interface."""

    def _check(self, delay_ms: float) -> None:
        for interface in self._interfaces:
            found_ms = parse_netem_delay_ms(self._qdisc(interface), interface)
            if abs(found_ms - delay_ms) > NETEM_TOLERANCE_MS:
                raise LinkError(f"{interface}: asked netem for {delay_ms} ms, read back {found_ms} ms")

    def _qdisc(self, interface: str) -> dict[str, Any]:
        shown = json.loads(self._run(["tc", "-j", "-s", "qdisc", "show", "dev", interface, "root"]))
        return dict(shown[0])


def bridge_commands(interfaces: tuple[str, str]) -> list[list[str]]:
    """Return the commands that join two interfaces by a bridge that forwards at once and is silent itself."""
    commands = [["ip", "link", "add", BRIDGE, "type", "bridge", "stp_state", "0", "mcast_snooping", "0"]]
    commands += [["ip", "link", "set", interface, "master", BRIDGE] for interface in interfaces]
    commands.append(["ip", "link", "set", BRIDGE, "up"])
    return commands


def netem_command(action: str, interface: str, delay_ms: float) -> list[str]:
    """Return the tc command that adds or changes netem on an interface."""
    # whole microseconds: tc would cut a longer fraction without a word
    delay = f"{round(delay_ms * 1e3)}us"
    command = ["tc", "qdisc", action, "dev", interface, "root", "netem"]
    return [*command, "delay", delay, "limit", str(NETEM_LIMIT_PACKETS)]


def parse_netem_delay_ms(qdisc: dict[str, Any], interface: str) -> float:
    """Return the delay of a netem as ``tc -j qdisc show`` describes it."""
    if qdisc.get("kind") != "netem":
        raise LinkError(f"{interface}: asked for netem, read back {qdisc.get('kind')!r}")
    # without a delay tc leaves the whole entry out
    return float(qdisc.get("options", {}).get("delay", {}).get("delay", 0.0)) * 1e3


class RelayDelay:
    """The relay process, started in the delay node and spoken to by lines."""

    name = "relay"

    def __init__(self, start: StartProcess, interfaces: tuple[str, str], delay_ms: float) -> None:
        command = [sys.executable, "-P", "-m", "testbed.relay", *interfaces, "--delay-ms", repr(float(delay_ms))]
        self._process = start(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0)
        self._unread = b""
        self.priority = str(self._answer()["priority"])

    def set_ms(self, delay_ms: float) -> None:
        """Change the delay of frames that arrive from now on."""
        self._send(f"delay {float(delay_ms)!r}\n")

    def report(self) -> dict[str, Any]:
        """Return frames passed and lost per arriving interface, and the lateness of frames in ms."""
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
