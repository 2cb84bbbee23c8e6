"""A server on loopback that says whatever a test wants, on sockets and in threads of its own."""

import socket
import struct
import threading
from contextlib import contextmanager


class RawServer:
    """``answer(connection, head, turn)`` is called for each request; ``turn`` counts those of its connection.

    It returns what to do next: "keep" the connection, "close" it, or "reset" it.
    """

    def __init__(self, answer):
        self._answer = answer
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.heads, self.closed_by_client = [], threading.Semaphore(0)
        self.connections = 0
        self.stopping = threading.Event()
        self._open, self._threads = [], []
        self._start(self._accept)

    def _start(self, target, *args):
        thread = threading.Thread(target=target, args=args)
        self._threads.append(thread)
        thread.start()

    def _accept(self):
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            self._open.append(connection)
            self._start(self._serve, connection)

    def _serve(self, connection):
        verdict, turn = "keep", 0
        try:
            while verdict == "keep":
                head = b""
                while not head.endswith(b"\r\n\r\n"):
                    piece = connection.recv(1)
                    if not piece:
                        self.closed_by_client.release()
                        return
                    head += piece
                self.heads.append(head)
                verdict = self._answer(connection, head, turn)
                turn += 1
            if verdict == "reset":
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        except OSError:
            self.closed_by_client.release()
        finally:
            connection.close()

    def stop(self):
        self.stopping.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self._open:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue
        for thread in self._threads:
            thread.join(timeout=30)


@contextmanager
def raw_server(answer):
    """Run a ``RawServer`` until the block ends."""
    server = RawServer(answer)
    try:
        yield server
    finally:
        server.stop()


def says(words, verdict="hold"):
    """Answer every request with these bytes; then hold the connection without a word until its other end goes."""

    def answer(connection, _head, _turn):
        connection.sendall(words)
        if verdict == "hold":
            connection.recv(1)
            return "close"
        return verdict

    return answer
