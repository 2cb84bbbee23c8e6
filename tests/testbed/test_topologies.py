"""Topologies fit together by their names, before any kernel sees them."""

import re
from types import SimpleNamespace

import pytest

from testbed.bridging import bridge_commands
from testbed.topologies import TOPOLOGIES


class Net:
    """Notes what a topology adds."""

    def __init__(self):
        self.hosts, self.interfaces, self.links = [], {}, []

    def addHost(self, name, ip):  # noqa: N802 - Mininet's name
        assert ip is None
        self.hosts.append(name)
        return SimpleNamespace(name=name)

    def addLink(self, one, other, intfName1, intfName2):  # noqa: N802, N803 - Mininet's names
        for host, interface in ((one, intfName1), (other, intfName2)):
            assert interface not in self.interfaces, f"{interface} twice"
            self.interfaces[interface] = host.name
        self.links.append((intfName1, intfName2))


@pytest.fixture(params=TOPOLOGIES)
def built(request):
    net = Net()
    return net, TOPOLOGIES[request.param].build(net), TOPOLOGIES[request.param]


def test_every_interface_belongs_to_the_node_that_the_wiring_says(built):
    net, wiring, _ = built
    assert net.interfaces[wiring.shaped_interface] == wiring.sender
    assert net.interfaces[wiring.receiving_interface] == wiring.receiver
    assert {net.interfaces[name] for name in wiring.delay_interfaces} == {wiring.delay_node}
    for node, interfaces in wiring.bridges.items():
        # a port left out would be a host cut off
        assert set(interfaces) == {name for name, host in net.interfaces.items() if host == node}


def test_the_delay_lies_between_the_shaped_interface_and_where_bytes_are_counted(built):
    net, wiring, _ = built
    towards_sender, towards_receiver = wiring.delay_interfaces
    assert (wiring.shaped_interface, towards_sender) in net.links
    assert (wiring.receiving_interface, towards_receiver) in net.links


def test_hosts_have_addresses_of_their_own_and_switches_none(built):
    net, wiring, _ = built
    assert len(set(wiring.addresses.values())) == len(wiring.addresses)
    assert set(wiring.addresses) == set(net.hosts) - set(wiring.bridges) - {wiring.delay_node}
    assert {"storage", "gpu"} <= set(wiring.addresses)
    named = {host for flow in wiring.flows for host in flow} | set(wiring.ends) | {wiring.near_cache} - {None}
    assert named <= set(wiring.addresses)


def test_the_picture_has_every_host_with_its_address(built):
    net, wiring, topology = built
    picture = topology.__doc__
    assert set(net.hosts) <= set(re.findall(r"\w+", picture))
    for address in wiring.addresses.values():
        assert address in picture


def test_a_switch_forwards_at_once_and_says_nothing_itself():
    commands = bridge_commands("br", ("a", "b"))
    assert commands[0] == ["ip", "link", "add", "br", "type", "bridge", "stp_state", "0", "mcast_snooping", "0"]
    assert [command[3] for command in commands[1:3]] == ["a", "b"]
    assert commands[-1][-2:] == ["br", "up"]
