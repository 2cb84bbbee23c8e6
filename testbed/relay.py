"""A process that delays, jitters and loses the frames between two interfaces: propagation without netem.

    python -m testbed.relay IF_A IF_B '[{"delay_ms": 10}, {"delay_ms": 10, "loss": 0.01}]'

It runs in a node that owns both interfaces and no address. The first way (``down``) is from IF_A to IF_B, the second
(``up``) is back; their fields are those of ``link_settings.Way``. It writes JSON lines: ``{"ready": ...}`` once its
sockets are open, and a report of frames and drops for each line ``report`` on its standard input and at its end. A
line ``delay DOWN_MS UP_MS`` changes the delays; the end of standard input ends the process.
"""

import argparse
import collections
import ctypes
import gc
import json
import os
import random
import select
import socket
import struct
import sys
import time

from testbed.delay import WAY_NAMES
from testbed.link_settings import Way
from testbed.loss import LossProcess
from testbed.priority import raise_priority
from testbed.steering import relay_processor

SOL_PACKET, PACKET_STATISTICS, PACKET_VNET_HDR, PACKET_IGNORE_OUTGOING = 263, 6, 15, 23
SO_SNDBUFFORCE, SO_RCVBUFFORCE = 32, 33
PR_SET_TIMERSLACK = 29
ETH_P_ALL = 3
RECEIVE_BUFFER_BYTES, SEND_BUFFER_BYTES = 64 << 20, 16 << 20
VNET_HDR_BYTES = 10  # struct virtio_net_hdr in front of each frame, both ways
MAX_FRAME_BYTES = VNET_HDR_BYTES + 14 + 65536
BATCH_FRAMES = 16  # read from one side before due frames are looked at again
IDLE_WAIT_S = 1.0
LATE_BIN_MS, LATE_BINS = 0.1, 1000


class Direction:
    """One way through the relay: frames in arrival order, each with the moment it is due.

    Parameters
    ----------
    source, sink : socket
        Where frames come from and go to.
    way : Way
        What happens to them in between.
    seed : int
        Of the draws of jitter and loss.
    """

    def __init__(self, source: socket.socket, sink: socket.socket, way: Way, seed: int = 0) -> None:
        self._source = source
        self._sink = sink
        self.delay_s, self._jitter_s = way.delay_ms / 1e3, way.jitter_ms / 1e3
        self._loss = LossProcess(way, seed) if way.loss else None
        self._draw = random.Random(seed).uniform
        self._queue: collections.deque[tuple[float, bytes]] = collections.deque()
        self._last_due_s = 0.0
        self._unread_drops = 0
        self.passed = 0
        self.lost = 0
        self.refused = 0
        self.late_bins = [0] * LATE_BINS

    def accept(self) -> None:
        """Read what has arrived, lose some of it, and set when each other frame leaves again."""
        now_s = time.monotonic()
        for _ in range(BATCH_FRAMES):
            try:
                frame = self._source.recv(MAX_FRAME_BYTES)
            except BlockingIOError:
                return
            if self._loss is not None and self._loss.loses_next():
                self.lost += 1
                continue
            due_s = now_s + self.delay_s
            if self._jitter_s:
                due_s += self._draw(-self._jitter_s, self._jitter_s)
            # a frame never overtakes the one before it, though its delay be shorter
            self._last_due_s = max(self._last_due_s, due_s)
            self._queue.append((self._last_due_s, frame))

    def deliver(self) -> float:
        """Send every frame that is due; return how long until the next one is."""
        now_s = time.monotonic()
        while self._queue and self._queue[0][0] <= now_s:
            due_s, frame = self._queue.popleft()
            try:
                self._sink.send(frame)
            except OSError:  # the interface's queue is full or it is down: a real drop, reported as one
                self.refused += 1
                continue
            self.passed += 1
            self.late_bins[min(LATE_BINS - 1, int((now_s - due_s) * 1e3 / LATE_BIN_MS))] += 1
        return self._queue[0][0] - time.monotonic() if self._queue else IDLE_WAIT_S

    def missed(self) -> int:
        """Return how many frames the kernel could not hand over because the socket's buffer was full."""
        # struct tpacket_stats: packets, drops; reading resets both
        _, drops = struct.unpack("=II", self._source.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8))
        self._unread_drops += drops
        return self._unread_drops


def open_port(interface: str) -> socket.socket:
    """Return a raw socket that gets every frame arriving at ``interface`` and none that leaves by it."""
    # protocol 0 hears nothing until bind; else frames of every interface would collect first
    port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    port.setblocking(False)
    for forced, plain, size_bytes in (
        (SO_RCVBUFFORCE, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES),
        (SO_SNDBUFFORCE, socket.SO_SNDBUF, SEND_BUFFER_BYTES),
    ):
        try:
            port.setsockopt(socket.SOL_SOCKET, forced, size_bytes)
        except PermissionError:  # not root on the machine itself: up to the system's limit
            port.setsockopt(socket.SOL_SOCKET, plain, size_bytes)
    # a frame keeps its offload header: unfinished checksums and super-packets pass as they are
    port.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
    port.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
    port.bind((interface, ETH_P_ALL))
    return port


class Relay:
    """Both directions between two interfaces, and the commands that arrive on a file descriptor."""

    def __init__(self, interface_a: str, interface_b: str, ways: list[Way], commands_fd: int) -> None:
        self._ports = (open_port(interface_a), open_port(interface_b))
        a, b = self._ports
        down, up = ways
        self._ways = dict(zip(WAY_NAMES, (Direction(a, b, down, seed=1), Direction(b, a, up, seed=2)), strict=True))
        self._commands_fd = commands_fd
        self._unfinished = b""

    def run(self) -> None:
        """Pass frames until the commands end."""
        watched = [*(port.fileno() for port in self._ports), self._commands_fd]
        while True:
            wait_s = min(way.deliver() for way in self._ways.values())
            # select takes microseconds, poll only milliseconds
            readable, _, _ = select.select(watched, (), (), max(0.0, wait_s))
            # commands first: a new delay holds for every frame sent after it was asked for
            if self._commands_fd in readable and not self._obey():
                return
            for way, port in zip(self._ways.values(), self._ports, strict=True):
                if port.fileno() in readable:
                    way.accept()

    def _obey(self) -> bool:
        """Carry out the command lines that have arrived; return False at their end."""
        data = os.read(self._commands_fd, 4096)
        *lines, self._unfinished = (self._unfinished + data).split(b"\n")
        for line in lines:
            command, *values = line.split()
            if command == b"delay":
                for way, delay_ms in zip(self._ways.values(), values, strict=True):
                    way.delay_s = float(delay_ms) / 1e3
            elif command == b"report":
                emit(self.report())
        return bool(data)

    def report(self) -> dict[str, object]:
        """Return frames passed, frames lost, and how late frames left (ms), since the start."""
        bins = [sum(counts) for counts in zip(*(way.late_bins for way in self._ways.values()), strict=True)]
        return {
            "passed": {name: way.passed for name, way in self._ways.items()},
            "lost": {name: way.lost for name, way in self._ways.items()},
            "drops": {name: way.refused + way.missed() for name, way in self._ways.items()},
            "late_ms": {"p50": late_ms(bins, 0.5), "p99": late_ms(bins, 0.99), "max": late_ms(bins, 1.0)},
        }


def late_ms(bins: list[int], share: float) -> float:
    """Return the lateness below which ``share`` of the frames left, one bin exact; 0 if there were none."""
    wanted = share * sum(bins)
    seen = 0
    for index, count in enumerate(bins):
        seen += count
        if seen >= wanted and count:
            return round((index + 1) * LATE_BIN_MS, 3)
    return 0.0


def emit(message: dict[str, object]) -> None:
    """Write one JSON line to standard output."""
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Run the relay of the command line."""
    parser = argparse.ArgumentParser(prog="testbed.relay", description="delay and lose frames between two interfaces")
    parser.add_argument("interface_a")
    parser.add_argument("interface_b")
    parser.add_argument("ways", help="JSON: what happens from A to B, and what happens back")
    args = parser.parse_args()
    ways = [Way(**way) for way in json.loads(args.ways)]
    relay = Relay(args.interface_a, args.interface_b, ways, sys.stdin.fileno())
    if (processor := relay_processor()) is not None:
        os.sched_setaffinity(0, {processor})
    # an ordinary thread's timers may fire 50 us late
    ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1)
    # no reference cycles are made here, and a collection would hold frames up
    gc.disable()
    emit({"ready": True, "priority": raise_priority()})
    relay.run()
    emit(relay.report())


if __name__ == "__main__":
    main()
