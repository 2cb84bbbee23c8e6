"""The emulated network: Mininet hosts, a shaped link with delay between them, every setting read back."""

import json
import statistics
import subprocess
from collections.abc import Sequence
from dataclasses import asdict
from types import TracebackType
from typing import Any, Self

from mininet.log import setLogLevel
from mininet.net import Mininet

from cachegen import UnknownNameError
from testbed.bridging import set_up_bridges
from testbed.delay import DelayBackend, Ways
from testbed.errors import LinkError
from testbed.host_setup import set_up_hosts
from testbed.hosts import Hosts
from testbed.isolation import is_isolated
from testbed.kernel_probe import KernelSupport, probe_kernel
from testbed.link_reader import LinkReader
from testbed.link_settings import LinkSettings
from testbed.netem import NetemDelay
from testbed.offloads import set_joining, stop_segmenting
from testbed.relay_delay import RelayDelay
from testbed.sampler import LinkReading
from testbed.shaper import BURST_RULE, Shaper
from testbed.steering import receive_beside_the_relay, relay_processor, wait_for_joining
from testbed.topologies import TOPOLOGIES
from testbed.topologies.wiring import Wiring
from testbed.trace import RATE_FLOOR_MBPS

PING_INTERVAL_S = 0.01
PROBE_PINGS = 20
PROBE_RATE_MBPS = 100.0
PING_PATIENCE_S = 5


class EmulatedNetwork:
    """A network of Mininet hosts whose bottleneck follows ``set_rate``; a context manager.

    It must run in namespaces of its own (see :mod:`testbed.isolation`), so that nothing survives the process.

    Parameters
    ----------
    topology : str
        A name of ``TOPOLOGIES``.
    link : LinkSettings, optional
        Delay, jitter, loss and queue, and the rate of the way back; by default an exact link.
    initial_rate_mbps : float
        Rate until the first ``set_rate``, in Ethernet frames.
    backend : str, optional
        ``netem`` or ``relay``; by default netem where the kernel has it.

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
        link: LinkSettings | None = None,
        initial_rate_mbps: float = 20.0,
        backend: str | None = None,
    ) -> None:
        if topology not in TOPOLOGIES:
            raise UnknownNameError(f"no topology named {topology!r}; known: {', '.join(sorted(TOPOLOGIES))}")
        if not is_isolated():
            raise LinkError("a network is only built in namespaces of its own: start by testbed.isolation")
        self._link = link or LinkSettings()
        support = _check_kernel(self._link, backend)
        self._shapers: list[Shaper] = []
        self._reader: LinkReader | None = None
        self._delay: DelayBackend | None = None
        self._steering: dict[str, Any] = {}
        self._net = _quiet_mininet()
        self._hosts = Hosts(self._net)
        try:
            self._wiring = TOPOLOGIES[topology].build(self._net)
            host_settings = set_up_hosts(self._hosts, self._wiring)
            set_up_bridges(self._hosts, self._wiring)
            shaping = self._shape(initial_rate_mbps)
            self._delay = self._make_delay(backend or support.delay_backend)
            self.settings: dict[str, Any] = {
                "topology": topology,
                **asdict(self._link),
                "backend": self._delay.name,
                "delay_priority": self._delay.priority,
                "steering": self._steering,
                "kernel_lacks": support.lacks,
                **shaping,
                **host_settings,
                "planned_rtt_ms": self._link.rtt_ms,
                "rtt_ms": self.round_trip_ms(),
            }
            self.set_rate(initial_rate_mbps)
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

    @property
    def wiring(self) -> Wiring:
        """Names and addresses of what was built."""
        return self._wiring

    def popen(self, host: str, argv: list[str], **popen_kwargs: Any) -> subprocess.Popen[Any]:
        """Start a process in a host, with the keyword arguments of ``subprocess.Popen``.

        It can import the project and gets no Ctrl-C of the terminal; ``close`` ends it if it still runs.
        """
        return self._hosts.popen(host, argv, **popen_kwargs)

    def sessions(self) -> list[int]:
        """Return the sessions of the processes started by ``popen``: each leads one of its own."""
        return self._hosts.process_ids()

    def describe_host(self, host: str) -> dict[str, Any]:
        """Return a host's ``ip``, its ``interfaces`` with kind and hardware address, and its ``routes``."""
        links = json.loads(self._hosts.run(host, ["ip", "-j", "-d", "link", "show"]))
        routes = json.loads(self._hosts.run(host, ["ip", "-j", "route", "show"]))
        return {
            "ip": self._wiring.ip(host),
            "interfaces": {
                link["ifname"]: {
                    "kind": link.get("linkinfo", {}).get("info_kind", link["link_type"]),
                    "hardware": link["address"],
                }
                for link in links
            },
            "routes": [route["dst"] for route in routes],
        }

    def ping_ms(self, count: int) -> list[float]:
        """Return the round-trip times across the shaped link, in ms, of the pings that were answered."""
        source, target = self._wiring.ends
        timing = ["-c", str(count), "-i", str(PING_INTERVAL_S), "-W", str(PING_PATIENCE_S)]
        # 1: none was answered
        answers = self._hosts.run(source, ["ping", "-n", *timing, self.ip(target)], good=(0, 1)).split("time=")[1:]
        return [float(answer.split()[0]) for answer in answers]

    def set_rate(self, rate_mbps: float) -> float:
        """Change the rate of the shaped link in place; return the rate now in force: 0, or at least a floor."""
        return self._shapers[0].set_rate(rate_mbps)

    def set_delay(self, delay_ms: float) -> None:
        """Change the one-way delay of frames sent from now on; the way back keeps one of its own."""
        assert self._delay is not None  # made in __init__
        own_ms = self._link.uplink_delay_ms
        self._delay.set_ms(delay_ms, delay_ms if own_ms is None else own_ms)

    def read_link(self) -> LinkReading:
        """Return the link's counters now; to be called by one thread, the sampler's."""
        assert self._reader is not None  # made in __init__
        return self._reader.read()

    def uplink_bytes(self) -> int:
        """Return the bytes that the shaped way back has put on the line."""
        counters, _ = self._shapers[1].read()
        return counters.sent_bytes

    def delay_report(self) -> dict[str, Any]:
        """Return frames passed, lost and dropped behind the shaper; from the relay also how late they left (ms)."""
        assert self._delay is not None  # made in __init__
        return self._delay.report()

    def close(self) -> None:
        """End every process started here and take the network down; safe to call twice."""
        self._hosts.end_processes()
        if self._delay is not None:
            self._delay.close()
        for part in (*self._shapers, self._reader):
            if part is not None:
                part.close()
        self._shapers, self._delay, self._reader = [], None, None
        # Not Mininet's stop(): it deletes each link through the hosts' shells, which an interruption may have
        # left in the middle of a command. The links go with the namespaces.
        for host in self._net.hosts:
            shell = host.shell
            host.terminate()
            shell.wait()
        self._net.hosts = []

    def round_trip_ms(self) -> dict[str, float]:
        """Return least and median of some round trips, and of how many; the link should be idle meanwhile.

        It gets its own delay for that, and a rate at which a ping takes no time to speak of; both stay.

        Raises
        ------
        LinkError
            None was answered.
        """
        self.set_rate(PROBE_RATE_MBPS)
        self.set_delay(self._link.delay_ms)
        self.ping_ms(1)
        times_ms = self.ping_ms(PROBE_PINGS)
        if not times_ms:
            raise LinkError(f"none of {PROBE_PINGS} pings was answered")
        return {"min": min(times_ms), "median": statistics.median(times_ms), "count": len(times_ms)}

    def _shape(self, rate_mbps: float) -> dict[str, Any]:
        """Put shapers on the ways that have a rate; return what was read back."""
        wiring, link = self._wiring, self._link
        queue = (link.queue_bytes, link.queue_discipline)
        down = Shaper(self._hosts, wiring.sender, wiring.shaped_interface, *queue, rate_mbps)
        self._shapers.append(down)
        uplink: dict[str, Any] | None = None
        if link.uplink_mbps is not None:
            back = (wiring.receiver, wiring.receiving_interface)
            self._shapers.append(Shaper(self._hosts, *back, *queue, link.uplink_mbps))
            uplink = self._shapers[-1].settings
        # frames that are lost or held up on purpose say nothing of the rate: then it is measured in front of that
        counted_at = (
            (wiring.receiver, wiring.receiving_interface)
            if link.down.is_exact
            else (wiring.delay_node, wiring.delay_interfaces[0])
        )
        self._reader = LinkReader(down, self._hosts, *counted_at)
        return {
            "shaped": f"{wiring.shaped_interface}, towards {wiring.receiver}",
            "counted_at": counted_at[1],
            "rate_layer": "Ethernet frames with their headers",
            "rate_floor_mbps": RATE_FLOOR_MBPS,
            "burst_rule": BURST_RULE,
            **down.settings,
            "uplink": uplink,
        }

    def _make_delay(self, backend: str) -> DelayBackend:
        node, interfaces = self._wiring.delay_node, self._wiring.delay_interfaces
        ways = (self._link.down, self._link.up)
        if backend == NetemDelay.name:
            return NetemDelay(lambda argv: self._hosts.run(node, argv), interfaces, ways)
        self._steering = self._steer(node, interfaces, ways)
        return RelayDelay(lambda argv, **kw: self._hosts.popen(node, argv, **kw), interfaces, ways)

    def _steer(self, node: str, interfaces: Sequence[str], ways: Ways) -> dict[str, Any]:
        """Make the relay's work small; return what of that was read back, for a kernel may not let us."""
        joined = all(way.is_exact for way in ways)  # no frame is lost or delayed by itself
        segments_wait_ms: list[float] = []
        received_elsewhere: list[bool] = []
        for host in self._hosts.names():
            for interface in self._hosts.interfaces(host):
                stop_segmenting(self._hosts, host, interface)
                if host != node:
                    received_elsewhere.append(receive_beside_the_relay(self._hosts, host, interface))
        for interface, way in zip(interfaces, ways, strict=True):
            set_joining(self._hosts, node, interface, on=joined)
            segments_wait_ms.append(wait_for_joining(self._hosts, node, interface, way.delay_ms) if joined else 0.0)
        return {
            "relay_processor": relay_processor(),
            "segments_wait_ms": segments_wait_ms,
            "received_elsewhere": received_elsewhere,
        }


def _quiet_mininet() -> Any:
    setLogLevel("critical")
    # Its initialisation would raise machine-wide limits and sysctls, which would stay after the run.
    Mininet.inited = True
    return Mininet(topo=None, build=False, controller=None)


def _check_kernel(link: LinkSettings, backend: str | None) -> KernelSupport:
    support = probe_kernel()
    needed = ["htb", "tbf", "bfifo", link.queue_discipline, *(["netem", "bridge"] if backend == "netem" else [])]
    missing = [f"{name}: {support.lacks[name]}" for name in needed if name in support.lacks]
    if missing:
        raise LinkError(f"this kernel cannot make such a link: {'; '.join(missing)}")
    return support
