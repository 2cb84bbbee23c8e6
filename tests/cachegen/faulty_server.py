"""A storage server that can be killed and restarted on its port, stopped and let go on, while a load goes on."""

import signal
import threading
import time
from contextlib import ExitStack

from storage_server import running_server


class FaultyServer:
    """A real server in a process of its own; a context manager."""

    def __init__(self, root):
        self._root, self._stack = root, ExitStack()
        self._threads = []

    def __enter__(self):
        self._server = self._stack.enter_context(running_server(self._root))
        self.url, self.port = self._server.url, self._server.port
        return self

    def __exit__(self, *error):
        for thread in self._threads:
            thread.join()
        # a stopped process is ended by SIGKILL too
        self._stack.close()

    def kill(self):
        self._server.process.kill()
        self._server.process.wait()

    def restart(self):
        self._server = self._stack.enter_context(running_server(self._root, self._server.port))

    def pause(self):
        self._server.process.send_signal(signal.SIGSTOP)

    def unpause(self):
        self._server.process.send_signal(signal.SIGCONT)

    def later(self, *steps):
        """Carry out ``(seconds from now, call)`` steps in a thread."""
        begun_s = time.monotonic()

        def carry_out():
            for at_s, call in steps:
                time.sleep(max(0.0, begun_s + at_s - time.monotonic()))
                call()

        thread = threading.Thread(target=carry_out)
        thread.start()
        self._threads.append(thread)
