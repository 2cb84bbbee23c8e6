"""Prepare the hosts of a network: sysctls, addresses, routes and neighbours, and read them back."""

import ipaddress
import json
from pathlib import Path
from typing import Any

from testbed.errors import LinkError
from testbed.hosts import Hosts
from testbed.topologies.wiring import Wiring

CONGESTION_CONTROL = "cubic"
SYSCTLS = {
    # no connection may profit from what an earlier one learned about the path
    "net.ipv4.tcp_no_metrics_save": "1",
    # the connections that the inference host keeps open to its store start each request at the window they had, as
    # operators of such connections set it
    "net.ipv4.tcp_slow_start_after_idle": "0",
    "net.ipv4.ip_forward": "0",
}
IPV6_SYSCTLS = {"net.ipv6.conf.all.disable_ipv6": "1"}
RECORDED_SYSCTLS = ("net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem")


def check_equal(what: str, wanted: dict[str, Any], found: dict[str, Any]) -> None:
    """Raise LinkError for the first value that was read back other than it was set."""
    for key, value in wanted.items():
        if found.get(key) != value:
            raise LinkError(f"{what}: {key} was set to {value}, read back {found.get(key)}")


def set_up_hosts(hosts: Hosts, wiring: Wiring) -> dict[str, Any]:
    """Bring every host up and return its settings as read back, ready for JSON."""
    sysctls = {}
    for host in hosts.names():
        # before an interface is up, or IPv6 would announce itself on the link
        sysctls[host] = _set_sysctls(hosts, host)
        for interface in hosts.interfaces(host):
            hosts.run(host, ["ip", "link", "set", "dev", interface, "up"])
    for host in wiring.addresses:
        _set_address(hosts, host, wiring)
    _fix_neighbours(hosts, wiring)
    return {"sysctls": sysctls, "congestion_control": CONGESTION_CONTROL}


def _set_sysctls(hosts: Hosts, host: str) -> dict[str, str]:
    wanted = SYSCTLS | (IPV6_SYSCTLS if Path("/proc/sys/net/ipv6").exists() else {})
    hosts.run(host, ["sysctl", "-q", "-w", *(f"{key}={value}" for key, value in wanted.items())])
    keys = [*wanted, *RECORDED_SYSCTLS]
    values = hosts.run(host, ["sysctl", "-n", *keys]).splitlines()
    found = {key: " ".join(value.split()) for key, value in zip(keys, values, strict=True)}
    check_equal(f"sysctl of {host}", wanted, found)
    return found


def _set_address(hosts: Hosts, host: str, wiring: Wiring) -> None:
    """Give a host its address and the route to its network, which names the congestion control.

    The sysctl for it would take only the algorithms that the machine allows every user.
    """
    address, interface = wiring.addresses[host], hosts.interfaces(host)[0]
    network = str(ipaddress.ip_interface(address).network)
    hosts.run(host, ["ip", "address", "add", address, "dev", interface, "noprefixroute"])
    route = ["ip", "route", "add", network, "dev", interface, "src", wiring.ip(host)]
    hosts.run(host, [*route, "congctl", CONGESTION_CONTROL])
    shown = json.loads(hosts.run(host, ["ip", "-j", "route", "show", network]))[0]
    metrics = {name: value for metric in shown.get("metrics", []) for name, value in metric.items()}
    check_equal(f"route to {network} in {host}", {"congestion": CONGESTION_CONTROL}, metrics)


def _fix_neighbours(hosts: Hosts, wiring: Wiring) -> None:
    """Tell the hosts each other's hardware address: ARP would cost a transfer a round trip, now and then."""
    for host in wiring.addresses:
        shown = hosts.run(host, ["ip", "-j", "link", "show", "dev", hosts.interfaces(host)[0]])
        hardware = json.loads(shown)[0]["address"]
        for other in wiring.addresses.keys() - {host}:
            neighbour = ["ip", "neigh", "add", wiring.ip(host), "lladdr", hardware]
            hosts.run(other, [*neighbour, "dev", hosts.interfaces(other)[0], "nud", "permanent"])
