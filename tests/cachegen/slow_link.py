"""A slow line between a client and a server on loopback: what a real link would give a fault the time to hit."""

import socket
import threading
import time
from contextlib import suppress

_PIECE_BYTES = 512


class SlowLink:
    """Forwards connections to a port; towards the client, all together carry so many bytes a second.

    A context manager. A server that is gone is a connection that breaks. ``connections`` counts those made.
    """

    def __init__(self, port, bytes_per_s):
        self._port, self._bytes_per_s = port, bytes_per_s
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._line, self._free_s = threading.Lock(), 0.0
        self._sockets, self._threads = [self._listener], []
        self.connections = 0

    def __enter__(self):
        self._start(self._accept)
        return self

    def __exit__(self, *error):
        for each in self._sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        for thread in self._threads:
            thread.join()

    def _start(self, work, *args):
        thread = threading.Thread(target=work, args=args)
        self._threads.append(thread)
        thread.start()

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._sockets.append(client)
            self.connections += 1
            try:
                server = socket.create_connection(("127.0.0.1", self._port))
            except OSError:
                client.close()
                continue
            self._sockets.append(server)
            self._start(self._carry, client, server, False)
            self._start(self._carry, server, client, True)

    def _carry(self, source, sink, slowly):
        with suppress(OSError):
            while piece := source.recv(_PIECE_BYTES):
                if slowly:
                    with self._line:
                        self._free_s = max(self._free_s, time.monotonic()) + len(piece) / self._bytes_per_s
                        due_s = self._free_s
                    time.sleep(max(0.0, due_s - time.monotonic()))
                sink.sendall(piece)
        for each in (source, sink):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
