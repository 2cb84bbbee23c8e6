"""Run commands and processes inside the hosts of a Mininet network."""

import os
import signal
import subprocess
from collections.abc import Collection
from pathlib import Path
from typing import Any

from testbed.errors import LinkError

PROJECT_DIR = Path(__file__).resolve().parent.parent
COMMAND_TIMEOUT_S = 10.0
STOP_TIMEOUT_S = 2.0


class Hosts:
    """The hosts of a network, by name.

    Mininet's ``host.cmd`` speaks through a terminal and loses exit statuses; here a failed command raises.
    """

    def __init__(self, net: Any) -> None:
        self._net = net
        self._processes: list[subprocess.Popen[Any]] = []

    def names(self) -> list[str]:
        """Return the hosts' names."""
        return [host.name for host in self._net.hosts]

    def interfaces(self, host: str) -> list[str]:
        """Return the names of a host's interfaces."""
        return list(self._net[host].nameToIntf)

    def namespace(self, host: str) -> str:
        """Return the path of a host's network namespace."""
        return f"/proc/{self._net[host].pid}/ns/net"

    def run(self, host: str, argv: list[str], good: Collection[int] = (0,)) -> str:
        """Run a command in a host and return its standard output; LinkError if its exit status is not a good one."""
        try:
            done = subprocess.run(
                self._inside(host, argv),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=COMMAND_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise LinkError(f"{host}: {' '.join(argv)}: no end after {COMMAND_TIMEOUT_S:g} s") from None
        if done.returncode not in good:
            words = " ".join((done.stderr + done.stdout).split())
            raise LinkError(f"{host}: {' '.join(argv)}: exit status {done.returncode}: {words}")
        return done.stdout

    def popen(self, host: str, argv: list[str], **popen_kwargs: Any) -> subprocess.Popen[Any]:
        """Start a process in a host: it sees the project's packages, and no Ctrl-C of the terminal."""
        environment = dict(popen_kwargs.pop("env", None) or os.environ)
        paths = [str(PROJECT_DIR), *filter(None, [environment.get("PYTHONPATH")])]
        environment["PYTHONPATH"] = os.pathsep.join(paths)
        popen_kwargs.setdefault("start_new_session", True)
        process = subprocess.Popen(self._inside(host, argv), env=environment, **popen_kwargs)
        self._processes.append(process)
        return process

    def process_ids(self) -> list[int]:
        """Return the ids of the processes started by ``popen``; unless told otherwise each leads its own session."""
        return [process.pid for process in self._processes]

    def end_processes(self) -> None:
        """End every process started by ``popen`` that is still running, and reap it."""
        running = [process for process in self._processes if process.poll() is None]
        for process in running:
            process.terminate()
        for process in running:
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                process.wait()
        self._processes.clear()

    def _inside(self, host: str, argv: list[str]) -> list[str]:
        return ["mnexec", "-a", str(self._net[host].pid), *argv]
