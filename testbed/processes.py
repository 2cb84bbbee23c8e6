"""The two programs of a run as the orchestrator sees them; the network they run in ends them with itself."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, Protocol

from cachegen import InvalidInputError
from testbed.errors import HostError

_LOG_TAIL_BYTES = 2000


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
            )

    def prepare(self, settings: dict[str, Any], on_progress: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
        """Load, store and warm up; return what the host says of itself."""
        return self._ask(settings, "ready", on_progress)

    def serve(self, message: dict[str, Any], on_event: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
        """Have one request served; return its result."""
        return self._ask(message, "result", on_event)

    def _ask(
        self, message: dict[str, Any], answer_kind: str, on_other: Callable[[dict[str, Any]], None]
    ) -> dict[str, Any]:
        stdin: IO[bytes] | None = self._process.stdin
        stdout: IO[bytes] | None = self._process.stdout
        assert stdin is not None  # pipes were asked for
        assert stdout is not None
        try:
            stdin.write(json.dumps(message).encode() + b"\n")
            stdin.flush()
        except BrokenPipeError as error:
            raise self._died() from error
        for line in stdout:
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
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
            )
        assert self._process.stdout is not None  # a pipe was asked for
        # the line that says where it listens comes when it does: nothing to poll for
        line = self._process.stdout.readline()
        if not line:
            self._process.wait()
            self.check()
        self.url: str = json.loads(line)["url"]

    def check(self) -> None:
        """Raise HostError if the server has ended."""
        status = self._process.poll()
        if status is not None:
            raise HostError(f"storage server: ended with status {status}; its last words:\n{log_tail(self._log)}")


def log_tail(path: Path) -> str:
    """Last lines of a log, for an error text."""
    return path.read_bytes()[-_LOG_TAIL_BYTES:].decode(errors="replace")
