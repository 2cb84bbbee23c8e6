"""Offloads of an interface: whether the kernel joins and takes apart TCP segments there."""

import array
import fcntl
import socket
import struct

from testbed.errors import LinkError
from testbed.hosts import Hosts
from testbed.netlink import network_namespace

SIOCETHTOOL = 0x8946
ETHTOOL_GTSO, ETHTOOL_STSO, ETHTOOL_GGRO, ETHTOOL_SGRO = 0x1E, 0x1F, 0x2B, 0x2C
_VALUE = struct.Struct("=II")  # struct ethtool_value: command, data
_IFREQ = struct.Struct("=16sQ8x")  # struct ifreq: name, pointer to the value


def set_joining(hosts: Hosts, host: str, interface: str, on: bool) -> None:
    """Let the kernel join TCP segments that wait together at an interface (GRO), or not.

    A process that passes frames on keeps up with a fast link only thus: the later it comes, the larger is what it
    sees. It works only where the sending end of the cable does not segment.

    Raises
    ------
    LinkError
        The kernel refused, or did something else.
    """
    _switch(hosts, host, interface, "receive offload", (ETHTOOL_SGRO, ETHTOOL_GGRO), on)


def stop_segmenting(hosts: Hosts, host: str, interface: str) -> None:
    """Let no large TCP segment leave an interface whole (TSO), as it would on a virtual cable.

    Raises
    ------
    LinkError
        The kernel refused, or did something else.
    """
    _switch(hosts, host, interface, "segmentation offload", (ETHTOOL_STSO, ETHTOOL_GTSO), on=False)


def _switch(hosts: Hosts, host: str, interface: str, what: str, commands: tuple[int, int], on: bool) -> None:
    """Set a feature by the first command and read it back by the second."""
    write, read = commands
    with network_namespace(hosts.namespace(host)), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        try:
            _ethtool(control, interface, write, int(on))
            found = _ethtool(control, interface, read, 0)
        except OSError as error:
            raise LinkError(f"{interface}: {what} cannot be set: {error.strerror}") from error
    if found != int(on):
        raise LinkError(f"{interface}: {what} was set to {int(on)}, read back {found}")


def _ethtool(control: socket.socket, interface: str, command: int, value: int) -> int:
    """Carry out one ethtool command and return the value that the kernel left."""
    data = array.array("B", _VALUE.pack(command, value))
    address, _ = data.buffer_info()
    fcntl.ioctl(control, SIOCETHTOOL, _IFREQ.pack(interface.encode(), address))
    return int(_VALUE.unpack(data.tobytes())[1])
