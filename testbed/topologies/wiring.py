"""What a topology tells the network about itself."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol


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
    ends : tuple of str
        The addressed hosts behind the sender's and the receiver's end, between which round trips are measured.
    bridges : mapping
        Switches: node -> the interfaces that its Linux bridge joins.
    flows : tuple of (str, str)
        Pairs of hosts, from and to, between which cross traffic crosses the shaped link.
    near_cache : str, optional
        The host of a second storage server, on the inference host's side of the shaped link.
    """

    addresses: dict[str, str]
    sender: str
    shaped_interface: str
    receiver: str
    receiving_interface: str
    delay_node: str
    delay_interfaces: tuple[str, str]
    ends: tuple[str, str] = ("storage", "gpu")
    bridges: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    flows: tuple[tuple[str, str], ...] = ()
    near_cache: str | None = None

    def ip(self, node: str) -> str:
        """Return a node's address without its prefix length."""
        return self.addresses[node].partition("/")[0]


class Topology(Protocol):
    """A shape of network; its docstring has its picture."""

    def build(self, net: Any) -> Wiring:
        """Add the nodes and links to a Mininet network."""
        ...
