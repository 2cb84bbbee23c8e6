"""netem's commands and read-back; the real thing is in tests/integration/test_link.py."""

import json

import pytest

from testbed.bridging import bridge_commands
from testbed.errors import LinkError
from testbed.link_settings import Way
from testbed.netem import BRIDGE, NetemDelay, check_netem, netem_command

ENDS = ("wire-eth0", "wire-eth1")


def qdisc(way, **counts):
    """One line of ``tc -j -s qdisc show`` on a kernel that has netem."""
    options = {"limit": 100000, "delay": {"delay": way.delay_ms / 1e3, "jitter": way.jitter_ms / 1e3}, "gap": 0}
    if way.loss:
        begins, ends = way.loss_chances()
        options["loss-gemodel"] = {"p": begins, "r": ends, "1-h": 1, "1-k": 0}
    return {"kind": "netem", "handle": "8001:", "root": True, "options": options, **counts}


class Node:
    """Stands for a node whose kernel has netem; says that it holds the ways given, by outgoing interface."""

    def __init__(self, ways):
        self.ways = ways
        self.commands = []

    def run(self, argv):
        self.commands.append(" ".join(argv))
        return json.dumps([qdisc(self.ways[argv[argv.index("dev") + 1]], packets=7, drops=1)]) if "show" in argv else ""


def test_each_way_is_delayed_where_it_leaves_a_silent_bridge():
    node = Node({"wire-eth1": Way(12.5), "wire-eth0": Way(3)})
    delay = NetemDelay(node.run, ENDS, (Way(12.5), Way(3)))
    delay.set_ms(30, 4)

    assert node.commands[0] == "ip link add wire-br type bridge stp_state 0 mcast_snooping 0"
    for end, before, after in (("wire-eth1", 12500, 30000), ("wire-eth0", 3000, 4000)):
        assert f"ip link set {end} master wire-br" in node.commands
        assert f"tc qdisc add dev {end} root netem limit 100000 delay {before}us" in node.commands
        assert f"tc qdisc change dev {end} root netem limit 100000 delay {after}us" in node.commands


def test_jitter_keeps_the_order_and_losses_follow_gilberts_model():
    command = " ".join(netem_command("add", "eth0", Way(10, jitter_ms=2, loss=0.02, loss_burst_frames=4)))

    assert "delay 10000us 2000us rate 100gbit" in command
    assert command.endswith("loss gemodel 0.510204% 25.000000% 100% 0%")


@pytest.mark.parametrize(
    ("held", "message"),
    [
        (Way(20), r"eth0: asked netem for a delay of 10 ms, read back 20\.0 ms"),
        (Way(10, jitter_ms=1), r"a jitter of 2 ms, read back 1\.0 ms"),
        (Way(10, jitter_ms=2), r"a loss chance p of 0\.010000, read back 0\.000000"),
        (Way(10, jitter_ms=2, loss=0.01, loss_burst_frames=3), "a loss chance p of 0.010000, read back 0.003367"),
    ],
)
def test_netem_that_holds_something_else_is_refused(held, message):
    with pytest.raises(LinkError, match=message):
        check_netem(qdisc(held), "eth0", Way(10, jitter_ms=2, loss=0.01))


def test_losses_on_purpose_are_told_from_accidents():
    node = Node({"wire-eth1": Way(10, loss=0.01), "wire-eth0": Way(10)})
    report = NetemDelay(node.run, ENDS, (Way(10, loss=0.01), Way(10))).report()

    assert report["passed"] == {"down": 7, "up": 7}
    assert report["lost"] == {"down": 1, "up": 0}
    assert report["drops"] == {"down": 0, "up": 1}


def test_zero_delay_is_what_tc_does_not_mention():
    found = qdisc(Way(0))
    del found["options"]["delay"]

    check_netem(found, "eth0", Way(0))


def test_another_discipline_in_netems_place_is_refused():
    with pytest.raises(LinkError, match="eth0: asked for netem, read back 'noqueue'"):
        check_netem({"kind": "noqueue"}, "eth0", Way(0))


def test_commands_hold_no_fraction_that_tc_would_cut():
    assert netem_command("add", "eth0", Way(1 / 3))[-1] == "333us"
    assert len(bridge_commands(BRIDGE, ENDS)) == 4
