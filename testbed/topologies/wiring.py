"""What a topology tells the network about itself."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Wiring:
    """Names of the nodes and interfaces that a topology has built.

    Parameters
    ----------
    addresses : dict
        Node -> ``address/prefix`` of its only addressed interface, for each node that sends or receives.
    sender, shaped_interface : str
        The node and interface whose outgoing rate follows the trace.
    receiver, receiving_interface : str
        Where what passed the shaped link arrives.
    delay_node : str
        The node that holds the propagation delay.
    delay_interfaces : tuple of str
        Its interfaces: towards the sender, towards the receiver.
    """

    addresses: dict[str, str]
    sender: str
    shaped_interface: str
    receiver: str
    receiving_interface: str
    delay_node: str
    delay_interfaces: tuple[str, str]

    def ip(self, node: str) -> str:
        """Return a node's address without its prefix length."""
        return self.addresses[node].partition("/")[0]
