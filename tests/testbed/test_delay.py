"""Delay backends: netem's commands and read-back, and a relay that fails."""

import json
import subprocess
import sys

import pytest

from testbed.delay import NetemDelay, RelayDelay, bridge_commands, netem_command, parse_netem_delay_ms
from testbed.errors import LinkError

ENDS = ("wire-eth0", "wire-eth1")


def qdisc(delay_s, **counts):
    """One line of ``tc -j -s qdisc show`` on a kernel that has netem."""
    options = {"limit": 100000, "delay": {"delay": delay_s, "jitter": 0, "correlation": 0}, "ecn": False, "gap": 0}
    return {"kind": "netem", "handle": "8001:", "root": True, "options": options, **counts}


class Node:
    """Stands for a node whose kernel has netem; answers tc's questions with a set delay."""

    def __init__(self, delay_s):
        self.delay_s = delay_s
        self.commands = []

    def run(self, argv):
        self.commands.append(" ".join(argv))
        return json.dumps([qdisc(self.delay_s, packets=7, drops=1)]) if "show" in argv else ""


def test_netem_delays_both_ways_behind_a_silent_bridge():
    node = Node(delay_s=0.0125)
    delay = NetemDelay(node.run, ENDS, 12.5)
    delay.set_ms(30)

    assert node.commands[0] == "ip link add wire-br type bridge stp_state 0 mcast_snooping 0"
    for end in ENDS:
        assert f"ip link set {end} master wire-br" in node.commands
        assert f"tc qdisc add dev {end} root netem delay 12500us limit 100000" in node.commands
        assert f"tc qdisc change dev {end} root netem delay 30000us limit 100000" in node.commands


def test_netem_that_holds_another_delay_is_refused():
    with pytest.raises(LinkError, match=r"wire-eth0: asked netem for 10 ms, read back 20\.0 ms"):
        NetemDelay(Node(delay_s=0.02).run, ENDS, 10)


def test_netem_reports_frames_and_losses():
    report = NetemDelay(Node(delay_s=0.01).run, ENDS, 10).report()

    assert report == {"frames": dict.fromkeys(ENDS, 7), "drops": dict.fromkeys(ENDS, 1)}


def test_zero_delay_is_what_tc_does_not_mention():
    found = qdisc(0.0)
    del found["options"]["delay"]

    assert parse_netem_delay_ms(found, "eth0") == 0.0


def test_another_discipline_in_netems_place_is_refused():
    with pytest.raises(LinkError, match="eth0: asked for netem, read back 'noqueue'"):
        parse_netem_delay_ms({"kind": "noqueue"}, "eth0")


def test_commands_hold_no_fraction_that_tc_would_cut():
    assert netem_command("add", "eth0", 1 / 3)[-3:] == ["333us", "limit", "100000"]
    assert len(bridge_commands(ENDS)) == 4


def test_relay_that_ends_leaves_its_last_words_in_the_error():
    def start(_argv, **kwargs):
        return subprocess.Popen([sys.executable, "-c", "raise SystemExit('no such interface')"], **kwargs)

    with pytest.raises(LinkError, match="the delay relay has ended: no such interface"):
        RelayDelay(start, ENDS, 10)
