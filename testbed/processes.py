"""The two programs of a run as the orchestrator sees them; the network they run in ends them with itself."""

import json
import select
import subprocess
import sys
import time
from collections.abc import Callable
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

    @property
    def storage_ip(self) -> str:
        """Address of the storage host."""
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
    """

    def __init__(self, network: Network, log: Path, threads: int) -> None:
        self._log = log
        with log.open("wb") as stderr:
            self._process = network.popen(
                "gpu",
                ["env", f"OMP_NUM_THREADS={threads}", sys.executable, "-P", "-m", "testbed.inference_host"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                bufsize=0,
            )
        self._lines = _Lines("inference host", self._process)

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
    """The HTTP server on the ``storage`` host.

    Parameters
    ----------
    network : Network
        Where it runs.
    root : Path
        Folder that it serves.
    log : Path
        Receives its standard error.
    """

    def __init__(self, network: Network, root: Path, log: Path) -> None:
        self._log = log
        with log.open("wb") as stderr:
            self._process = network.popen(
                "storage",
                [
                    *(sys.executable, "-P", "-m", "cachegen", "serve"),
                    *("--root", str(root), "--host", network.storage_ip, "--port", "0"),
                    # the emulated network has no other machines
                    "--insecure-no-token",
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
                bufsize=0,
            )
        # the line that says where it listens comes when it does: nothing to poll for
        line = _Lines("storage server", self._process).read(_START_PATIENCE_S)
        if not line:
            self._process.wait()
            self.check()
        self.url: str = json.loads(line)["url"]

    def check(self) -> None:
        """Raise HostError if the server has ended."""
        status = self._process.poll()
        if status is not None:
            raise HostError(f"storage server: ended with status {status}; its last words:\n{log_tail(self._log)}")


class _Lines:
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
