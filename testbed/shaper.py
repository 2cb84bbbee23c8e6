"""The shaped end of a way: rate by HTB, outages by a gate, a bounded queue; changed and read while traffic flows.

::

    interface
      5:   HTB      the rate; it keeps its tokens when the rate changes, so no step brings a burst
      5:1  class
      10:  TBF      the gate: wide open, but shut during an outage
      20:  bfifo    the queue (or codel, fq_codel)

HTB knows no rate of zero, and it keeps what a class owes as time: at a tiny rate, one frame sent in an outage would
keep the link shut long after its end. A TBF forgets its debts with every change, which makes it a poor shaper and a
good gate: shut, it lets one frame out and then none for minutes, and at the end of the outage it is open at once.
"""

import errno
import json
import socket
from typing import Any

from testbed.errors import LinkError
from testbed.host_setup import check_equal
from testbed.hosts import Hosts
from testbed.link_settings import FRAME_BYTES
from testbed.netlink import HtbCounters, HtbSetting, NetlinkPort, TbfSetting, network_namespace
from testbed.trace import RATE_FLOOR_MBPS, replayed_mbps

ROOT_HANDLE, CLASS_ID = 0x50000, 0x50001
GATE_HANDLE = 0x100000
BURST_S = 0.005
BURST_RULE = "2 frames or 5 ms of the rate"
CLOCK_BYTES = 16  # netlink keeps a burst in ticks of 64 ns at the class's rate

OPEN_RATE_BPS, OPEN_BURST_BYTES = 100_000_000_000, 1 << 20
# Slow enough for a second frame to wait three minutes, fast enough for the kernel's clock to hold a whole frame.
SHUT_RATE_BPS, SHUT_BURST_BYTES = 64, 1600

# A frame that wakes the shaper when the gate opens, as nothing else might be sent: of a type for local experiments,
# from and to nobody.
WAKE_FRAME = bytes.fromhex("020000000002 020000000001 88b5".replace(" ", "")).ljust(60, b"\0")


def htb_setting(rate_mbps: float) -> HtbSetting:
    """Return the shaper's setting for a rate above 0: its floor, and a burst as short as accuracy allows.

    With a shorter burst the line is not kept full when timers come late, as they do on fast links and on busy or
    virtual machines; a longer one answers an idle moment with a burst that the trace does not have.
    """
    rate_bps = round(max(RATE_FLOOR_MBPS, rate_mbps) * 1e6)
    return HtbSetting(rate_bps, max(2 * FRAME_BYTES, round(rate_bps / 8 * BURST_S)), 2 * FRAME_BYTES)


def gate_setting(is_open: bool, queue_bytes: int) -> TbfSetting:
    """Return the gate's setting; it hands ``queue_bytes`` on to a bfifo below it."""
    rate, burst = (OPEN_RATE_BPS, OPEN_BURST_BYTES) if is_open else (SHUT_RATE_BPS, SHUT_BURST_BYTES)
    return TbfSetting(rate, burst, queue_bytes)


def shaper_commands(interface: str, setting: HtbSetting, queue_bytes: int, discipline: str) -> list[list[str]]:
    """Return the commands that put the shaper on an interface."""
    change = ["tc", "qdisc", "add", "dev", interface]
    new_class = ["tc", "class", "add", "dev", interface, "parent", "5:", "classid", "5:1", "htb"]
    rate, burst, quantum = f"{setting.rate_bps}bit", str(setting.burst_bytes), str(setting.quantum_bytes)
    gate = ["rate", f"{OPEN_RATE_BPS}bit", "burst", str(OPEN_BURST_BYTES), "limit", str(queue_bytes)]
    return [
        # TCP would hand HTB packets of 64 KB, and HTB sends each of them whole
        ["ip", "link", "set", "dev", interface, "gso_max_segs", "1"],
        [*change, "root", "handle", "5:", "htb", "default", "1"],
        [*new_class, "rate", rate, "ceil", rate, "burst", burst, "cburst", burst, "quantum", quantum],
        [*change, "parent", "5:1", "handle", "10:", "tbf", *gate],
        [*change, "parent", "10:1", "handle", "20:", discipline, "limit", str(queue_limit(discipline, queue_bytes))],
    ]


def queue_limit(discipline: str, queue_bytes: int) -> int:
    """Return a queue's limit as its discipline counts: bfifo in bytes, the others in packets."""
    return queue_bytes if discipline == "bfifo" else max(2, queue_bytes // FRAME_BYTES)


class Shaper:
    """The rate and the queue in front of one way of a link.

    Parameters
    ----------
    hosts : Hosts
        Of the network.
    host, interface : str
        The sending end.
    queue_bytes : int
        Room of the queue.
    discipline : str
        Of the queue.
    rate_mbps : float
        Until the first ``set_rate``.

    Attributes
    ----------
    settings : dict
        What was set and read back, ready for JSON.
    """

    def __init__(
        self, hosts: Hosts, host: str, interface: str, queue_bytes: int, discipline: str, rate_mbps: float
    ) -> None:
        setting = htb_setting(rate_mbps)
        for command in shaper_commands(interface, setting, queue_bytes, discipline):
            hosts.run(host, command)
        self._queue_bytes = queue_bytes
        self._is_open = True
        namespace = hosts.namespace(host)
        self._control = NetlinkPort(interface, namespace)
        self._counters = NetlinkPort(interface, namespace)
        self._waker = _packet_socket(interface, namespace)
        # tc has rounded the burst to its own clock; these messages are the ones that later changes send
        self._control.set_htb(CLASS_ID, setting)
        self._set_gate(is_open=True)
        self.settings: dict[str, Any] = {
            **self._read_class(setting),
            **_read_interface(hosts, host, interface, queue_bytes, discipline),
        }

    def set_rate(self, rate_mbps: float) -> float:
        """Change the rate in place; return the rate now in force: 0, or the one asked for but for a floor."""
        rate_mbps = replayed_mbps(rate_mbps)
        if rate_mbps == 0.0:
            if self._is_open:
                self._set_gate(is_open=False)
            return 0.0
        setting = htb_setting(rate_mbps)
        self._control.set_htb(CLASS_ID, setting)
        if not self._is_open:
            self._set_gate(is_open=True)
            self._wake()
        return setting.rate_bps / 1e6

    def read(self) -> tuple[HtbCounters, int]:
        """Return the class's counters and how many packets were refused; to be called by one thread."""
        _, counters = self._counters.read_htb(CLASS_ID)
        return counters, self._counters.read_root_drops(ROOT_HANDLE)

    def close(self) -> None:
        """Close the sockets; the shaper itself ends with its interface."""
        for end in (self._control, self._counters, self._waker):
            end.close()

    def _wake(self) -> None:
        try:
            self._waker.send(WAKE_FRAME)
        except OSError as error:
            # the queue is full: the frame was refused, but it has woken the shaper
            if error.errno not in (errno.ENOBUFS, errno.EAGAIN):
                raise

    def _set_gate(self, is_open: bool) -> None:
        self._control.set_tbf(GATE_HANDLE, CLASS_ID, gate_setting(is_open, self._queue_bytes))
        self._is_open = is_open

    def _read_class(self, setting: HtbSetting) -> dict[str, Any]:
        found, _ = self._control.read_htb(CLASS_ID)
        if abs(found.burst_bytes - setting.burst_bytes) > CLOCK_BYTES:
            raise LinkError(f"HTB burst: {setting.burst_bytes} bytes were set, read back {found.burst_bytes}")
        wanted = {"rate_bps": setting.rate_bps, "quantum_bytes": setting.quantum_bytes}
        check_equal("HTB class", wanted, {"rate_bps": found.rate_bps, "quantum_bytes": found.quantum_bytes})
        return {
            "initial_rate_mbps": found.rate_bps / 1e6,
            "initial_burst_bytes": found.burst_bytes,
            "quantum_bytes": found.quantum_bytes,
        }


def _packet_socket(interface: str, namespace: str) -> socket.socket:
    """A socket that sends whole frames by an interface, and hears nothing."""
    with network_namespace(namespace):
        port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        port.bind((interface, 0))
    port.setblocking(False)
    return port


def _read_interface(hosts: Hosts, host: str, interface: str, queue_bytes: int, discipline: str) -> dict[str, Any]:
    """Read back the segment limit of the interface and the disciplines on it."""
    link = json.loads(hosts.run(host, ["ip", "-j", "-d", "link", "show", "dev", interface]))[0]
    check_equal(interface, {"gso_max_segs": 1}, link)
    qdiscs = json.loads(hosts.run(host, ["tc", "-j", "qdisc", "show", "dev", interface]))
    by_handle = {qdisc["handle"]: qdisc for qdisc in qdiscs}
    check_equal(f"qdisc 5: of {interface}", {"kind": "htb", "root": True}, by_handle.get("5:", {}))
    check_equal(f"qdisc 10: of {interface}", {"kind": "tbf", "parent": "5:1"}, by_handle.get("10:", {}))
    leaf = by_handle.get("20:", {})
    check_equal(f"qdisc 20: of {interface}", {"kind": discipline, "parent": "10:1"}, leaf)
    limit = queue_limit(discipline, queue_bytes)
    check_equal(f"{discipline} of {interface}", {"limit": limit}, leaf.get("options", {}))
    return {
        "queue_bytes": queue_bytes,
        "queue_discipline": discipline,
        "gso_max_segs": link["gso_max_segs"],
        "mtu_bytes": link["mtu"],
    }
