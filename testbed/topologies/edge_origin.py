"""A cache near the inference host, and the store far away."""

from typing import Any

from testbed.topologies.wiring import Wiring


class EdgeOrigin:
    """The inference host asks a cache on its own switch first, and the far store for what that does not hold.

    ::

          storage                     wire                                    gpu
        10.0.0.1/24               (no address)                            10.0.0.2/24
        storage-eth0 ------- wire-eth0    wire-eth1 ------- edge (bridge) ----/
             |                   |            |           edge-eth0       \\----\\
        rate of the trace      delay        delay                             cache
        and queue (HTB)        to edge      to storage                      10.0.0.3/24

    `storage` holds every context, `cache` some of the chunks (``--near-share``, drawn by ``--seed``; see
    testbed/near_cache.py). The way from `cache` to `gpu` is a local network: neither rate nor delay are added to it.
    """

    def build(self, net: Any) -> Wiring:
        """Add the nodes and links to a Mininet network."""
        nodes = {name: net.addHost(name, ip=None) for name in ("storage", "wire", "edge", "gpu", "cache")}
        net.addLink(nodes["storage"], nodes["wire"], intfName1="storage-eth0", intfName2="wire-eth0")
        net.addLink(nodes["edge"], nodes["wire"], intfName1="edge-eth0", intfName2="wire-eth1")
        for port, host in enumerate(("gpu", "cache"), start=1):
            net.addLink(nodes[host], nodes["edge"], intfName1=f"{host}-eth0", intfName2=f"edge-eth{port}")
        return Wiring(
            addresses={"storage": "10.0.0.1/24", "gpu": "10.0.0.2/24", "cache": "10.0.0.3/24"},
            sender="storage",
            shaped_interface="storage-eth0",
            receiver="edge",
            receiving_interface="edge-eth0",
            delay_node="wire",
            delay_interfaces=("wire-eth0", "wire-eth1"),
            bridges={"edge": ("edge-eth0", "edge-eth1", "edge-eth2")},
            near_cache="cache",
        )
