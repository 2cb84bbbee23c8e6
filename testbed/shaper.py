"""The shaped end of a link: HTB on the sender's interface, changed and read while traffic flows."""

import json
import time
from typing import Any

from testbed.errors import LinkError
from testbed.host_setup import check_equal
from testbed.hosts import Hosts
from testbed.netlink import HtbSetting, NetlinkPort
from testbed.sampler import LinkReading
from testbed.topologies.wiring import Wiring
from testbed.trace import RATE_FLOOR_MBPS

FRAME_BYTES = 1514
ROOT_HANDLE, CLASS_ID = 0x50000, 0x50001
BURST_S = 0.005
BURST_RULE = "2 frames or 5 ms of the rate"
CLOCK_BYTES = 16  # netlink keeps a burst in ticks of 64 ns at the class's rate


def htb_setting(rate_mbps: float) -> HtbSetting:
    """Return the shaper's setting for a rate: the floor, and a burst as short as accuracy allows.

    With a shorter burst the line is not kept full when timers come late, as they do on fast links and on busy or
    virtual machines; a longer one answers an idle moment with a burst that the trace does not have.
    """
    rate_bps = round(max(RATE_FLOOR_MBPS, rate_mbps) * 1e6)
    return HtbSetting(rate_bps, max(2 * FRAME_BYTES, round(rate_bps / 8 * BURST_S)), 2 * FRAME_BYTES)


def shaper_commands(interface: str, setting: HtbSetting, queue_bytes: int) -> list[list[str]]:
    """Return the commands that put the shaper on an interface."""
    change = ["tc", "qdisc", "add", "dev", interface]
    new_class = ["tc", "class", "add", "dev", interface, "parent", "5:", "classid", "5:1", "htb"]
    rate, burst, quantum = f"{setting.rate_bps}bit", str(setting.burst_bytes), str(setting.quantum_bytes)
    return [
        # TCP would hand HTB packets of 64 KB, and HTB sends each of them whole
        ["ip", "link", "set", "dev", interface, "gso_max_segs", "1"],
        [*change, "root", "handle", "5:", "htb", "default", "1"],
        [*new_class, "rate", rate, "ceil", rate, "burst", burst, "cburst", burst, "quantum", quantum],
        [*change, "parent", "5:1", "handle", "10:", "bfifo", "limit", str(queue_bytes)],
    ]


class Shaper:
    """The rate and the queue in front of a link.

    Attributes
    ----------
    settings : dict
        What was set and read back, ready for JSON.
    """

    def __init__(self, hosts: Hosts, wiring: Wiring, queue_bytes: int, rate_mbps: float) -> None:
        sender, interface = wiring.sender, wiring.shaped_interface
        setting = htb_setting(rate_mbps)
        for command in shaper_commands(interface, setting, queue_bytes):
            hosts.run(sender, command)
        receiver = (wiring.receiving_interface, hosts.namespace(wiring.receiver))
        self._control = NetlinkPort(interface, hosts.namespace(sender))
        self._counters = NetlinkPort(interface, hosts.namespace(sender))
        self._arrival = NetlinkPort(*receiver)
        # tc has rounded the burst to its own clock; this message is the one that later changes send
        self._control.set_htb(CLASS_ID, setting)
        self.settings: dict[str, Any] = {
            "shaped": f"{interface}, towards {wiring.receiver}; the way back has the delay and no rate limit",
            "rate_layer": "Ethernet frames with their headers",
            "rate_floor_mbps": RATE_FLOOR_MBPS,
            "burst_rule": BURST_RULE,
            **self._read_class(setting),
            **_read_interface(hosts, sender, interface, queue_bytes),
        }

    def set_rate(self, rate_mbps: float) -> float:
        """Change the rate in place; return the rate now in force, which has a floor."""
        setting = htb_setting(rate_mbps)
        self._control.set_htb(CLASS_ID, setting)
        return setting.rate_bps / 1e6

    def read(self) -> LinkReading:
        """Return the link's counters now; to be called by one thread, the sampler's."""
        before_s = time.monotonic()
        received_bytes = self._arrival.read_interface().rx_bytes
        _, counters = self._counters.read_htb(CLASS_ID)
        between_s = time.monotonic()
        drops = self._counters.read_root_drops(ROOT_HANDLE)
        return LinkReading(
            time_s=(before_s + between_s) / 2,
            received_bytes=received_bytes,
            sent_bytes=counters.sent_bytes,
            backlog_bytes=counters.backlog_bytes,
            drops=drops,
        )

    def close(self) -> None:
        """Close the netlink sockets; the shaper itself ends with its interface."""
        for port in (self._control, self._counters, self._arrival):
            port.close()

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


def _read_interface(hosts: Hosts, host: str, interface: str, queue_bytes: int) -> dict[str, Any]:
    """Read back the segment limit of the interface and the disciplines on it."""
    link = json.loads(hosts.run(host, ["ip", "-j", "-d", "link", "show", "dev", interface]))[0]
    check_equal(interface, {"gso_max_segs": 1}, link)
    qdiscs = json.loads(hosts.run(host, ["tc", "-j", "qdisc", "show", "dev", interface]))
    by_handle = {qdisc["handle"]: qdisc for qdisc in qdiscs}
    check_equal(f"qdisc 5: of {interface}", {"kind": "htb", "root": True}, by_handle.get("5:", {}))
    leaf = by_handle.get("10:", {})
    check_equal(f"qdisc 10: of {interface}", {"kind": "bfifo", "parent": "5:1"}, leaf)
    check_equal(f"bfifo of {interface}", {"limit": queue_bytes}, leaf.get("options", {}))
    return {"queue_bytes": queue_bytes, "gso_max_segs": link["gso_max_segs"], "mtu_bytes": link["mtu"]}
