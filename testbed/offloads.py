"""Switch an interface's receive offload: frames that arrive together may be handed on as one."""

import array
import fcntl
import socket
import struct

from testbed.errors import LinkError
from testbed.netlink import network_namespace

SIOCETHTOOL = 0x8946
ETHTOOL_GGRO, ETHTOOL_SGRO = 0x2B, 0x2C
_VALUE = struct.Struct("=II")  # struct ethtool_value: command, data
_IFREQ = struct.Struct("=16sQ8x")  # struct ifreq: name, pointer to the value


def set_receive_offload(interface: str, namespace: str, on: bool) -> None:
    """Switch GRO and read it back.

    With it, a process that passes frames on costs less per frame the more there are: the kernel joins TCP segments
    that wait together, and ``gso_max_segs 1`` on the other side takes them apart again.

    Raises
    ------
    LinkError
        The kernel refused, or did something else.
    """
    with network_namespace(namespace), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        try:
            _ethtool(control, interface, ETHTOOL_SGRO, int(on))
            found = _ethtool(control, interface, ETHTOOL_GGRO, 0)
        except OSError as error:
            raise LinkError(f"{interface}: receive offload cannot be set: {error.strerror}") from error
    if found != int(on):
        raise LinkError(f"{interface}: receive offload was set to {int(on)}, read back {found}")


def _ethtool(control: socket.socket, interface: str, command: int, value: int) -> int:
    """Carry out one ethtool command and return the value that the kernel left."""
    data = array.array("B", _VALUE.pack(command, value))
    address, _ = data.buffer_info()
    fcntl.ioctl(control, SIOCETHTOOL, _IFREQ.pack(interface.encode(), address))
    return int(_VALUE.unpack(data.tobytes())[1])
