"""The two ends of a test flow, each a process on a host.

    python -m testbed.selftest.traffic sink
    python -m testbed.selftest.traffic cubic|bbr|reno|udp ADDRESS SECONDS SEND_BUFFER_BYTES

A sender always has data. UDP is held back by its send buffer alone, which counts what waits in the shaper's queue: as
long as that has room for the buffer, nothing is dropped and no processor spins.
"""

import contextlib
import os
import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from testbed.steering import relay_processor

PORT = 9100
PIECE_BYTES = 1 << 16
# IP makes eight full frames of it: a program that hands over each frame by itself is slower than a fast link
DATAGRAM_BYTES = 8 * 1480 - 8
SO_SNDBUFFORCE = 32
CONNECT_TIMEOUT_S = 20.0
# As many as a load may have on their way
CONNECTIONS = 8
NICE = -20


def sink() -> None:
    """Take in and throw away what comes by TCP and UDP, for ever; a line on standard output says that it listens."""
    with socket.create_server(("", PORT)) as server, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
        datagrams.bind(("", PORT))
        threading.Thread(target=_drain, args=(datagrams,), daemon=True).start()
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        while True:
            threading.Thread(target=_drain, args=(server.accept()[0],), daemon=True).start()


def _drain(source: socket.socket) -> None:
    room = bytearray(1 << 18)
    with source:
        while True:
            try:
                if not source.recv_into(room) and source.type == socket.SOCK_STREAM:
                    return
            except ConnectionError:
                return


def send(kind: str, address: str, duration_s: float, buffer_bytes: int) -> None:
    """Send to a sink for some time."""
    end_s = time.monotonic() + duration_s
    if kind == "udp":
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as target:
            _set_send_buffer(target, buffer_bytes)
            target.connect((address, PORT))
            _send_until(end_s, target, bytes(DATAGRAM_BYTES))
        return
    # no single one fills a fast link: the kernel lets each put but a millisecond's worth into the queue
    with ThreadPoolExecutor(CONNECTIONS) as senders:
        for sender in [senders.submit(_send_by_tcp, kind, address, end_s) for _ in range(CONNECTIONS)]:
            sender.result()


def _send_by_tcp(congestion_control: str, address: str, end_s: float) -> None:
    with socket.create_connection((address, PORT), CONNECT_TIMEOUT_S) as target:
        target.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, congestion_control.encode())
        _send_until(end_s, target, bytes(PIECE_BYTES))


def _send_until(end_s: float, target: socket.socket, piece: bytes) -> None:
    while (left_s := end_s - time.monotonic()) > 0:
        # in an outage the buffer stays full
        target.settimeout(left_s)
        try:
            target.send(piece)
        except TimeoutError:
            return


def _set_send_buffer(target: socket.socket, size_bytes: int) -> None:
    try:
        target.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, size_bytes)
    except PermissionError:  # not root on the machine itself: up to the system's limit
        target.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, size_bytes)


def main() -> None:
    """Run one end."""
    # it is the link that is measured, not how soon its users get a processor; behind the relay all the same
    with contextlib.suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, NICE)
    if (kept := relay_processor()) is not None:
        os.sched_setaffinity(0, os.sched_getaffinity(0) - {kept})
    role, *values = sys.argv[1:]
    if role == "sink":
        sink()
    address, duration_s, buffer_bytes = values
    send(role, address, float(duration_s), int(buffer_bytes))


if __name__ == "__main__":
    main()
