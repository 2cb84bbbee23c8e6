"""A real storage server in a process of its own, for tests."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]


class StorageServer:
    """A running server; ``ready`` is what it announced."""

    def __init__(self, process: subprocess.Popen, ready: dict) -> None:
        self.process = process
        self.ready = ready
        self.port = ready["port"]
        self.url = ready["url"]

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal and return the exit status."""
        self.process.send_signal(number)
        return self.process.wait(timeout=30)


@contextmanager
def running_server(
    root: Path, port: int = 0, *, flags: tuple[str, ...] = (), tls: tuple[Path, Path] | None = None, **environment: str
) -> Iterator[StorageServer]:
    """Serve ``root`` until the block ends; ``flags`` are those of ``cachegen serve``."""
    command = [sys.executable, "-m", "cachegen", "serve", "--root", str(root), "--port", str(port), *flags]
    if tls is not None:
        command += ["--tls-cert", str(tls[0]), "--tls-key", str(tls[1])]
    with subprocess.Popen(
        command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment}
    ) as process:
        try:
            yield StorageServer(process, json.loads(process.stdout.readline()))
        finally:
            if process.poll() is None:
                process.kill()
