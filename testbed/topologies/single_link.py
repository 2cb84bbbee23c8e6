"""Two hosts and one link."""

from typing import Any

from testbed.topologies.wiring import Wiring


class SingleLink:
    """Two hosts and one link.

    ::

          storage                        wire                         gpu
        10.0.0.1/24                  (no address)                 10.0.0.2/24
        storage-eth0 ------- wire-eth0        wire-eth1 ------- gpu-eth0
             |                      |          |
        rate of the trace        delay       delay
        and queue (HTB)          to gpu      to storage

    To its two hosts this is one direct link: `wire` has no address, answers nothing and forwards every frame. It is
    the length of the cable. The delay must come behind the shaper, as on a real link, where a frame is first put on
    the line and then travels; with both on one interface the kernel would delay first and shape afterwards, and the
    shaper's queue would hold frames that are only travelling. From `gpu` to `storage` the link has the same delay
    and no rate limit: requests and acknowledgements are small.
    """

    def build(self, net: Any) -> Wiring:
        """Add the nodes and links to a Mininet network."""
        # addresses are set by the network itself: Mininet would need ifconfig for it
        nodes = {name: net.addHost(name, ip=None) for name in ("storage", "wire", "gpu")}
        net.addLink(nodes["storage"], nodes["wire"], intfName1="storage-eth0", intfName2="wire-eth0")
        net.addLink(nodes["gpu"], nodes["wire"], intfName1="gpu-eth0", intfName2="wire-eth1")
        return Wiring(
            addresses={"storage": "10.0.0.1/24", "gpu": "10.0.0.2/24"},
            sender="storage",
            shaped_interface="storage-eth0",
            receiver="gpu",
            receiving_interface="gpu-eth0",
            delay_node="wire",
            delay_interfaces=("wire-eth0", "wire-eth1"),
        )
