"""The emulated network: Mininet hosts, a shaped link with delay between them, every setting read back."""

import statistics
import subprocess
from types import TracebackType
from typing import Any, Self

from mininet.log import setLogLevel
from mininet.net import Mininet

from cachegen import UnknownNameError
from testbed.bridging import set_up_bridges
from testbed.delay import DelayBackend, NetemDelay, RelayDelay
from testbed.errors import LinkError
from testbed.host_setup import set_up_hosts
from testbed.hosts import Hosts
from testbed.isolation import is_isolated
from testbed.kernel_probe import KernelSupport, probe_kernel
from testbed.sampler import LinkReading
from testbed.shaper import Shaper
from testbed.topologies import TOPOLOGIES

QUEUE_BYTES = 384 * 1024
PING_INTERVAL_S = 0.01
PROBE_PINGS = 20
PING_PATIENCE_S = 5


class EmulatedNetwork:
    """A network of Mininet hosts whose bottleneck follows ``set_rate``; a context manager.

    It must run in namespaces of its own (see :mod:`testbed.isolation`), so that nothing survives the process.

    Parameters
    ----------
    topology : str
        A name of ``TOPOLOGIES``.
    delay_ms : float
        One-way propagation delay, the same both ways.
    queue_bytes : int
        Limit of the drop-tail queue in front of the shaped link.
    initial_rate_mbps : float
        Rate until the first ``set_rate``, in Ethernet frames; the way back is not shaped.

    Attributes
    ----------
    settings : dict
        All that was set and read back, ready for JSON; ``settings["rtt_ms"]`` is the measured round trip.

    Raises
    ------
    UnknownNameError
        No such topology.
    LinkError
        The kernel lacks what a link needs, or a setting read back differs from what was asked for.
    """

    def __init__(
        self,
        topology: str = "single_link",
        delay_ms: float = 10.0,
        queue_bytes: int = QUEUE_BYTES,
        initial_rate_mbps: float = 20.0,
    ) -> None:
        if topology not in TOPOLOGIES:
            raise UnknownNameError(f"no topology named {topology!r}; known: {', '.join(sorted(TOPOLOGIES))}")
        if not is_isolated():
            raise LinkError("a network is only built in namespaces of its own: start by testbed.isolation")
        support = _check_kernel()
        self._shaper: Shaper | None = None
        self._delay: DelayBackend | None = None
        self._net = _quiet_mininet()
        self._hosts = Hosts(self._net)
        try:
            self._wiring = TOPOLOGIES[topology].build(self._net)
            host_settings = set_up_hosts(self._hosts, self._wiring)
            set_up_bridges(self._hosts, self._wiring)
            self._shaper = Shaper(self._hosts, self._wiring, queue_bytes, initial_rate_mbps)
            self._delay = self._make_delay(support.delay_backend, delay_ms)
            self.settings: dict[str, Any] = {
                "topology": topology,
                "delay_ms": delay_ms,
                "backend": self._delay.name,
                "delay_priority": self._delay.priority,
                "kernel_lacks": support.lacks,
                **self._shaper.settings,
                **host_settings,
                "rtt_ms": self._measure_round_trip(),
            }
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def storage_ip(self) -> str:
        """Address of the host ``storage``."""
        return self.ip("storage")

    @property
    def flows(self) -> tuple[tuple[str, str], ...]:
        """Pairs of hosts, from and to, between which cross traffic crosses the shaped link."""
        return self._wiring.flows

    @property
    def near_cache(self) -> str | None:
        """The host of a second storage server near the inference host, if the topology has one."""
        return self._wiring.near_cache

    def ip(self, host: str) -> str:
        """Address of a host."""
        return self._wiring.ip(host)

    def popen(self, host: str, argv: list[str], **popen_kwargs: Any) -> subprocess.Popen[Any]:
        """Start a process in a host, with the keyword arguments of ``subprocess.Popen``.

        It can import the project and gets no Ctrl-C of the terminal; ``close`` ends it if it still runs.
        """
        return self._hosts.popen(host, argv, **popen_kwargs)

    def ping_ms(self, count: int) -> list[float]:
        """Return the round-trip times across the shaped link, in ms, of the pings that were answered."""
        source, target = self._wiring.ends
        command = [
            "ping",
            "-n",
            "-c",
            str(count),
            "-i",
            str(PING_INTERVAL_S),
            "-W",
            str(PING_PATIENCE_S),
            self.ip(target),
        ]
        answers = self._hosts.run(source, command).split("time=")[1:]
        return [float(answer.split()[0]) for answer in answers]

    def set_rate(self, rate_mbps: float) -> float:
        """Change the rate of the shaped link in place; return the rate now in force, which has a floor."""
        assert self._shaper is not None  # made in __init__
        return self._shaper.set_rate(rate_mbps)

    def set_delay(self, delay_ms: float) -> None:
        """Change the one-way delay of frames sent from now on."""
        assert self._delay is not None  # made in __init__
        self._delay.set_ms(delay_ms)

    def read_link(self) -> LinkReading:
        """Return the link's counters now; to be called by one thread, the sampler's."""
        assert self._shaper is not None  # made in __init__
        return self._shaper.read()

    def delay_report(self) -> dict[str, Any]:
        """Return frames passed and lost by the delay node and, from the relay, how late it sent them (ms)."""
        assert self._delay is not None  # made in __init__
        return self._delay.report()

    def close(self) -> None:
        """End every process started here and take the network down; safe to call twice."""
        self._hosts.end_processes()
        if self._delay is not None:
            self._delay.close()
        if self._shaper is not None:
            self._shaper.close()
        self._delay = self._shaper = None
        # Not Mininet's stop(): it deletes each link through the hosts' shells, which an interruption may have
        # left in the middle of a command. The links go with the namespaces.
        for host in self._net.hosts:
            shell = host.shell
            host.terminate()
            shell.wait()
        self._net.hosts = []

    def _make_delay(self, backend: str, delay_ms: float) -> DelayBackend:
        node, interfaces = self._wiring.delay_node, self._wiring.delay_interfaces
        if backend == NetemDelay.name:
            return NetemDelay(lambda argv: self._hosts.run(node, argv), interfaces, delay_ms)
        return RelayDelay(lambda argv, **kw: self._hosts.popen(node, argv, **kw), interfaces, delay_ms)

    def _measure_round_trip(self) -> dict[str, float]:
        self.ping_ms(1)
        times_ms = self.ping_ms(PROBE_PINGS)
        return {"min": min(times_ms), "median": statistics.median(times_ms), "count": len(times_ms)}


def _quiet_mininet() -> Any:
    setLogLevel("critical")
    # Its initialisation would raise machine-wide limits and sysctls, which would stay after the run.
    Mininet.inited = True
    return Mininet(topo=None, build=False, controller=None)


def _check_kernel() -> KernelSupport:
    support = probe_kernel()
    missing = [f"{name}: {support.lacks[name]}" for name in ("htb", "bfifo") if name in support.lacks]
    if missing:
        raise LinkError(f"this kernel cannot shape a link: {'; '.join(missing)}")
    return support
