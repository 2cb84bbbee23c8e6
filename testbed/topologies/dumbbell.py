"""Several hosts on both sides of one bottleneck."""

from typing import Any

from testbed.topologies.wiring import Wiring


class Dumbbell:
    """Two storage hosts and three GPU hosts, all of whose traffic crosses one link between two switches.

    ::

          storage                                                            gpu
        10.0.0.1/24                                                      10.0.0.2/24
              \\                                                               /
               left (bridge) ------- wire (no address) ------- right (bridge) ---- gpu2
              /  left-eth0        wire-eth0  wire-eth1        right-eth0      \\    10.0.0.4/24
          storage2   |                |          |                             gpu3
        10.0.0.3/24  rate of the    delay      delay                       10.0.0.5/24
                     trace, queue   to right   to left
                     (HTB)

    `storage` serves `gpu`, and that is what the run measures. `storage2` sends cross traffic to `gpu2` and to `gpu3`,
    one flow each (see testbed/cross_traffic.py). All of them wait in the one queue in front of `left-eth0`, whose
    rate is the trace's; so a request gets what TCP's fairness leaves to it. What arrives is counted at `right-eth0`,
    cross traffic included. The switches are Linux bridges in nodes of their own; the links to the hosts are not shaped.
    """

    def build(self, net: Any) -> Wiring:
        """Add the nodes and links to a Mininet network."""
        names = ("storage", "storage2", "left", "wire", "right", "gpu", "gpu2", "gpu3")
        nodes = {name: net.addHost(name, ip=None) for name in names}
        net.addLink(nodes["left"], nodes["wire"], intfName1="left-eth0", intfName2="wire-eth0")
        net.addLink(nodes["right"], nodes["wire"], intfName1="right-eth0", intfName2="wire-eth1")
        for switch, hosts in (("left", ("storage", "storage2")), ("right", ("gpu", "gpu2", "gpu3"))):
            for port, host in enumerate(hosts, start=1):
                net.addLink(nodes[host], nodes[switch], intfName1=f"{host}-eth0", intfName2=f"{switch}-eth{port}")
        return Wiring(
            addresses={
                "storage": "10.0.0.1/24",
                "gpu": "10.0.0.2/24",
                "storage2": "10.0.0.3/24",
                "gpu2": "10.0.0.4/24",
                "gpu3": "10.0.0.5/24",
            },
            sender="left",
            shaped_interface="left-eth0",
            receiver="right",
            receiving_interface="right-eth0",
            delay_node="wire",
            delay_interfaces=("wire-eth0", "wire-eth1"),
            bridges={
                "left": ("left-eth0", "left-eth1", "left-eth2"),
                "right": ("right-eth0", "right-eth1", "right-eth2", "right-eth3"),
            },
            flows=(("storage2", "gpu2"), ("storage2", "gpu3")),
        )
