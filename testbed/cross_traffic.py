"""Other people's traffic on the bottleneck: TCP flows between hosts that the run does not measure.

As programs, in those hosts::

    python -m testbed.cross_traffic receive
    python -m testbed.cross_traffic send ADDRESS PORT onoff SEED

A flow sends as fast as TCP lets it. ``bulk`` never pauses. ``onoff`` sends over a new connection for a while and pauses
for a while; both times are exponential with a mean of ``MEAN_SPELL_S``, drawn by the seed. Each spell of sending is a
JSON line; a flow ends with its standard input.
"""

import json
import random
import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from cachegen import InvalidInputError
from testbed.errors import HostError
from testbed.processes import Lines

MODES = ("onoff", "bulk")
MEAN_SPELL_S = 2.0
_PATIENCE_S = 30.0
_PIECE = bytes(1 << 16)
_TCP_NOTSENT_LOWAT = 25
_NOT_SENT_BYTES = 1 << 17


class Network(Protocol):
    """What is needed of a network to make traffic in it."""

    @property
    def flows(self) -> tuple[tuple[str, str], ...]:
        """Pairs of hosts, from and to."""
        ...

    def ip(self, host: str) -> str:
        """Address of a host."""
        ...

    def popen(self, host: str, argv: list[str], **popen_kwargs: Any) -> subprocess.Popen[Any]:
        """Start a process in a host."""
        ...


@dataclass(frozen=True)
class _Flow:
    name: str
    receiver: subprocess.Popen[bytes]
    sender: subprocess.Popen[bytes]


class CrossTraffic:
    """All cross flows of a network, from entering to leaving this context manager.

    Parameters
    ----------
    network : Network
        Where; one without cross flows has no traffic.
    mode : str
        Of ``MODES``.
    seed : int
        Flow ``i`` of a seed has the same spells in every run.
    log : Path
        Receives a JSON line for each spell of sending: ``flow``, ``started_s`` and ``ended_s`` (CLOCK_MONOTONIC) and
        ``sent_bytes``, of payload.

    Raises
    ------
    HostError
        A flow does not start, or has ended by itself.
    """

    def __init__(self, network: Network, mode: str, seed: int, log: Path) -> None:
        self._network, self._mode, self._seed, self._log = network, mode, seed, log
        self._flows: list[_Flow] = []

    def __enter__(self) -> Self:
        for index, (source, sink) in enumerate(self._network.flows):
            self._flows.append(self._start(f"{source}-{sink}", source, sink, f"{self._seed}/{index}"))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for flow in self._flows:
            assert flow.sender.stdin is not None  # a pipe was asked for
            flow.sender.stdin.close()
        for flow in self._flows:
            with flow.sender, flow.receiver:  # at their end: close pipes, reap
                try:
                    flow.sender.wait(_PATIENCE_S)
                except subprocess.TimeoutExpired:
                    flow.sender.kill()
                # it would wait for the next connection for ever
                flow.receiver.kill()

    def check(self) -> None:
        """Raise HostError if a flow has ended by itself."""
        for flow in self._flows:
            for process in (flow.sender, flow.receiver):
                if process.poll() is not None:
                    raise HostError(f"cross traffic {flow.name}: ended with status {process.returncode}")

    def _start(self, name: str, source: str, sink: str, seed: str) -> _Flow:
        program = [sys.executable, "-P", "-m", "testbed.cross_traffic"]
        receiver = self._network.popen(
            sink, [*program, "receive"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, bufsize=0
        )
        line = Lines(f"cross traffic {name}", receiver).read(_PATIENCE_S)
        if not line:
            raise HostError(f"cross traffic {name}: {sink} ended with status {receiver.wait()}")
        port = str(json.loads(line)["port"])
        with self._log.open("ab") as log:
            sender = self._network.popen(
                source,
                [*program, "send", self._network.ip(sink), port, self._mode, seed, name],
                stdin=subprocess.PIPE,
                stdout=log,
            )
        return _Flow(name, receiver, sender)


def total_bytes(log: Path) -> dict[str, int]:
    """Payload bytes that each flow has sent, out of the log; empty without one."""
    totals: dict[str, int] = {}
    for line in log.read_text().splitlines() if log.exists() else ():
        spell = json.loads(line)
        totals[spell["flow"]] = totals.get(spell["flow"], 0) + spell["sent_bytes"]
    return totals


def spells(mode: str, seed: str) -> Iterator[tuple[float, float]]:
    """Seconds of pause and of sending, in turn, without end."""
    if mode not in MODES:
        raise InvalidInputError(f"no cross traffic {mode!r}; there are {', '.join(MODES)}")
    chance = random.Random(f"cross traffic/{seed}")
    while True:
        if mode == "bulk":
            yield 0.0, float("inf")
        else:
            yield chance.expovariate(1 / MEAN_SPELL_S), chance.expovariate(1 / MEAN_SPELL_S)


def send(address: str, port: int, mode: str, seed: str, name: str) -> None:
    """Send until standard input ends."""
    for pause_s, length_s in spells(mode, seed):
        if _input_ends_within(pause_s):
            return
        started_s = time.monotonic()
        with socket.create_connection((address, port)) as connection:
            # what the socket still holds would go on when the spell is over
            connection.setsockopt(socket.IPPROTO_TCP, _TCP_NOTSENT_LOWAT, _NOT_SENT_BYTES)
            sent_bytes, interrupted = _send_until(connection, started_s + length_s)
        spell = {"flow": name, "started_s": started_s, "ended_s": time.monotonic(), "sent_bytes": sent_bytes}
        sys.stdout.write(json.dumps(spell) + "\n")
        sys.stdout.flush()
        if interrupted:
            return


def _send_until(connection: socket.socket, end_s: float) -> tuple[int, bool]:
    """Send until a moment or the end of the input; return how many bytes, and whether the input ended."""
    connection.setblocking(False)
    sent_bytes = 0
    while (left_s := end_s - time.monotonic()) > 0:
        # a full queue may hold for long: then the moment counts, not the next writable one
        readable, writable, _ = select.select([sys.stdin], [connection], [], min(left_s, 1.0))
        if readable:
            return sent_bytes, True
        if writable:
            sent_bytes += connection.send(_PIECE)
    return sent_bytes, False


def _input_ends_within(duration_s: float) -> bool:
    return bool(select.select([sys.stdin], [], [], duration_s)[0])


def receive() -> None:
    """Take whatever comes, one connection after the other, for ever."""
    with socket.create_server(("", 0)) as server:
        sys.stdout.write(json.dumps({"port": server.getsockname()[1]}) + "\n")
        sys.stdout.flush()
        while True:
            connection, _ = server.accept()
            with connection:
                while connection.recv(1 << 18):
                    pass


def main() -> None:
    """Be one end of a flow."""
    if sys.argv[1] == "receive":
        receive()
    else:
        address, port, mode, seed, name = sys.argv[2:]
        send(address, int(port), mode, seed, name)


if __name__ == "__main__":
    main()
