"""Switches: Linux bridges in nodes of their own, and what hosts behind one must not do."""

import json

from testbed.host_setup import check_equal
from testbed.hosts import Hosts
from testbed.topologies.wiring import Wiring

BRIDGE = "switch"


def set_up_bridges(hosts: Hosts, wiring: Wiring) -> None:
    """Make the bridges of a topology and read them back; does nothing where there are none."""
    for node, interfaces in wiring.bridges.items():
        for command in bridge_commands(BRIDGE, interfaces):
            hosts.run(node, command)
        for interface in interfaces:
            shown = json.loads(hosts.run(node, ["ip", "-j", "link", "show", "dev", interface]))[0]
            check_equal(f"{interface} of {node}", {"master": BRIDGE}, shown)
    for host in wiring.addresses if wiring.bridges else ():
        _send_single_frames(hosts, host)


def bridge_commands(bridge: str, interfaces: tuple[str, ...]) -> list[list[str]]:
    """Return the commands that join interfaces by a bridge that forwards at once and is silent itself."""
    commands = [["ip", "link", "add", bridge, "type", "bridge", "stp_state", "0", "mcast_snooping", "0"]]
    commands += [["ip", "link", "set", interface, "master", bridge] for interface in interfaces]
    commands.append(["ip", "link", "set", bridge, "up"])
    return commands


def _send_single_frames(hosts: Hosts, host: str) -> None:
    """Have a host's TCP cut its segments itself: the shaper, in another node, gets them as they are sent."""
    interface = hosts.interfaces(host)[0]
    hosts.run(host, ["ip", "link", "set", "dev", interface, "gso_max_segs", "1"])
    link = json.loads(hosts.run(host, ["ip", "-j", "-d", "link", "show", "dev", interface]))[0]
    check_equal(interface, {"gso_max_segs": 1}, link)
