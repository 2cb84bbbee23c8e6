"""The two programs of a run as the orchestrator sees them; the network they run in ends them with itself."""

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from cachegen import InvalidInputError
from testbed.errors import HostError

_LOG_TAIL_BYTES = 2000
# Without a word for so long a program is taken for stuck. Preparing has long steps: a large model's calibration.
_PREPARE_PATIENCE_S = 1800.0
_SERVE_PATIENCE_S = 60.0
_START_PATIENCE_S = 60.0


class Network(Protocol):
    """What is needed of a network to start programs in it."""

    def ip(self, host: str) -> str:
        """Address of a host."""
        ...

    def popen(self, host: str, argv: list[str], **popen_kwargs: Any) -> subprocess.Popen[Any]:
        """Start a process in a host."""
        ...


class InferenceHost:
    """The program on the ``gpu`` host, spoken to in JSON lines.

    Parameters
    ----------
    network : Network
        Where it runs.
    log : Path
        Receives its standard error.
    threads : int
        For the model's arithmetic.
    environment : mapping
        Variables besides those of this process.
    """

    def __init__(self, network: Network, log: Path, threads: int, environment: Mapping[str, str] = {}) -> None:
        self._log = log
        with log.open("wb") as stderr:
            self._process = network.popen(
                "gpu",
                ["env", f"OMP_NUM_THREADS={threads}", sys.executable, "-P", "-m", "testbed.inference_host"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                bufsize=0,
                env={**os.environ, **environment},
            )
        self._lines = Lines("inference host", self._process)

    def prepare(self, settings: dict[str, Any], on_progress: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
        """Load, store and warm up; return what the host says of itself."""
        return self._ask(settings, "ready", on_progress, _PREPARE_PATIENCE_S)

    def serve(self, message: dict[str, Any], on_event: Callable[[dict[str, Any]], None]) -> list[dict[str, Any]]:
        """Have a batch of requests served; return their results. ``message["timeout_s"]`` is the host's own limit."""
        pause_s = max(request["arrival_s"] for request in message["requests"])
        answer = self._ask(message, "results", on_event, pause_s + message["timeout_s"] + _SERVE_PATIENCE_S)
        results: list[dict[str, Any]] = answer["results"]
        return results

    def _ask(
        self,
        message: dict[str, Any],
        answer_kind: str,
        on_other: Callable[[dict[str, Any]], None],
        patience_s: float,
    ) -> dict[str, Any]:
        assert self._process.stdin is not None  # a pipe was asked for
        try:
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise self._died() from error
        while line := self._lines.read(patience_s):
            answer: dict[str, Any] = json.loads(line)
            kind = answer.pop("type")
            if kind == answer_kind:
                return answer
            if kind == "error":
                raise (InvalidInputError if answer["refused"] else HostError)(f"inference host: {answer['error']}")
            on_other(answer)
        raise self._died()

    def _died(self) -> HostError:
        status = self._process.wait()
        return HostError(f"inference host: ended with status {status}; its last words:\n{log_tail(self._log)}")


class StorageServer:
    """The HTTP server on a storage host.

    Parameters
    ----------
    network : Network
        Where it runs.
    root : Path
        Folder that it serves.
    log : Path
        Receives its standard error.
    environment : mapping
        Variables besides those of this process.
    host : str
        The host's name.
    """

    def __init__(
        self, network: Network, root: Path, log: Path, environment: Mapping[str, str] = {}, host: str = "storage"
    ) -> None:
        self._network, self._root, self._log, self._host = network, root, log, host
        self._environment = {**os.environ, **environment}
        log.write_bytes(b"")
        self._process, self.url, self._port = self._start(0)

    def _start(self, port: int) -> tuple[subprocess.Popen[bytes], str, int]:
        with self._log.open("ab") as stderr:
            process = self._network.popen(
                self._host,
                [
                    *(sys.executable, "-P", "-m", "cachegen", "serve"),
                    *("--root", str(self._root), "--host", self._network.ip(self._host), "--port", str(port)),
                    # the emulated network has no other machines
                    "--insecure-no-token",
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
                bufsize=0,
                env=self._environment,
            )
        # the line that says where it listens comes when it does: nothing to poll for
        line = Lines("storage server", process).read(_START_PATIENCE_S)
        if not line:
            raise self._ended(process.wait())
        ready = json.loads(line)
        return process, ready["url"], ready["port"]

    def check(self) -> None:
        """Raise HostError if the server has ended."""
        status = self._process.poll()
        if status is not None:
            raise self._ended(status)

    def kill(self) -> None:
        """End it with SIGKILL."""
        self._process.kill()
        self._process.wait()

    def restart(self) -> None:
        """Start it anew where it listened before, unless it runs."""
        if self._process.poll() is not None:
            self._process, self.url, self._port = self._start(self._port)

    def pause(self) -> None:
        """Stop it with SIGSTOP."""
        self._process.send_signal(signal.SIGSTOP)

    def unpause(self) -> None:
        """Let it go on with SIGCONT."""
        self._process.send_signal(signal.SIGCONT)

    def _ended(self, status: int) -> HostError:
        return HostError(f"storage server: ended with status {status}; its last words:\n{log_tail(self._log)}")


class Lines:
    """Lines of a program's unbuffered standard output, each awaited for a bounded time."""

    def __init__(self, name: str, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None  # a pipe was asked for
        self._name, self._pipe, self._unread = name, process.stdout, b""

    def read(self, patience_s: float) -> bytes:
        """Return the next line, nothing at the output's end; HostError after ``patience_s`` without one."""
        deadline_s = time.monotonic() + patience_s
        while b"\n" not in self._unread:
            ready, _, _ = select.select([self._pipe], [], [], max(0.0, deadline_s - time.monotonic()))
            if not ready:
                raise HostError(f"{self._name}: no word for {patience_s:g} s")
            piece = self._pipe.read(1 << 16)
            if not piece:
                return b""
            self._unread += piece
        line, _, self._unread = self._unread.partition(b"\n")
        return line


def log_tail(path: Path) -> str:
    """Last lines of a log, for an error text."""
    return path.read_bytes()[-_LOG_TAIL_BYTES:].decode(errors="replace")
