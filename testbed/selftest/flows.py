"""Run a flow over a link that follows a trace, in a network of its own, and keep all that it did."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from testbed.cpu_account import CpuUse, CpuWatch
from testbed.errors import HostError
from testbed.link_settings import LinkSettings
from testbed.network import EmulatedNetwork
from testbed.replay import LinkReplay, ReplayLog
from testbed.sampler import LinkSampler, LinkSamples
from testbed.trace import Trace

_MODULE = [sys.executable, "-P", "-m", "testbed.selftest.traffic"]
_LEAD_S = 0.1
_PATIENCE_S = 30.0
# Of the queue, what UDP's send buffer may fill: the kernel counts a frame there half as large again as on the wire,
# and doubles what it is asked for.
_BUFFER_SHARE = 0.6


@dataclass(frozen=True)
class FlowRun:
    """What a link did while a flow ran over it."""

    link: LinkSettings
    samples: LinkSamples
    log: ReplayLog
    cpu: CpuUse
    rtt_ms: float
    delay_report: dict[str, Any]


def run_flow(
    trace: Trace,
    flow: str,
    duration_s: float,
    link: LinkSettings,
    *,
    buffer_bytes: int | None = None,
    busy_loops: int = 0,
) -> FlowRun:
    """Replay a trace under one flow to the receiver.

    Parameters
    ----------
    trace : Trace
        Followed from its beginning.
    flow : str
        Congestion control of TCP, or ``udp``.
    duration_s : float
        How long.
    link : LinkSettings
        Of the link.
    buffer_bytes : int, optional
        UDP's send buffer; by default the queue has room for all of it.
    busy_loops : int
        Programs that do nothing but use a processor meanwhile.
    """
    with EmulatedNetwork(link=link, initial_rate_mbps=max(trace.rates_mbps)) as network:
        target = start_sink(network, "gpu")
        sampler, replay = LinkSampler(network.read_link, period_s=0.002), LinkReplay(network)
        buffer = str(round(_BUFFER_SHARE * link.queue_bytes) if buffer_bytes is None else buffer_bytes)
        with _busy(busy_loops):
            watch = CpuWatch(network.sessions)
            sampler.start()
            replay.start(trace, 0.0, time.monotonic() + _LEAD_S)
            sender = network.popen("storage", [*_MODULE, flow, target, str(duration_s + _LEAD_S), buffer])
            _wait(sender, duration_s)
            log = replay.stop()
            cpu = watch.use()
        time.sleep(3 * link.delay_ms / 1e3)
        sampler.stop()
        return FlowRun(link, sampler.since(0.0), log, cpu, network.settings["rtt_ms"]["min"], network.delay_report())


def start_sink(network: EmulatedNetwork, host: str) -> str:
    """Start a sink on a host; return its address once it listens."""
    process = network.popen(host, [*_MODULE, "sink"], stdout=subprocess.PIPE)
    assert process.stdout is not None  # it was opened as a pipe
    if not process.stdout.readline():
        raise HostError(f"the test flow's sink on {host} has ended with status {process.wait()}")
    return network.wiring.ip(host)


def run_sender(network: EmulatedNetwork, host: str, flow: str, target: str, duration_s: float) -> None:
    """Send from a host to a sink's address; return when it is done."""
    buffer = str(round(_BUFFER_SHARE * int(network.settings["queue_bytes"])))
    _wait(network.popen(host, [*_MODULE, flow, target, str(duration_s), buffer]), duration_s)


def _wait(sender: "subprocess.Popen[Any]", duration_s: float) -> None:
    try:
        status = sender.wait(duration_s + _PATIENCE_S)
    except subprocess.TimeoutExpired:
        raise HostError(f"the test flow's sender did not end within {_PATIENCE_S:g} s of its time") from None
    if status:
        raise HostError(f"the test flow's sender ended with status {status}")


@contextmanager
def _busy(count: int) -> Iterator[None]:
    """Let as many programs use a processor each, in sessions of their own: no part of the run."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"], start_new_session=True) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
