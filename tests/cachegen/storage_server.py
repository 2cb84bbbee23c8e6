"""A real storage server in a process of its own, for tests."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
_SERVE = (
    "import sys; from cachegen.server import serve; "
    "serve(sys.argv[1], '127.0.0.1', int(sys.argv[2]), lambda line: print(line, flush=True))"
)


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
def running_server(root: Path, port: int = 0) -> Iterator[StorageServer]:
    """Serve ``root`` until the block ends."""
    command = [sys.executable, "-c", _SERVE, str(root), str(port)]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield StorageServer(process, json.loads(process.stdout.readline()))
        finally:
            if process.poll() is None:
                process.kill()
