"""Read a link's counters at both its ends at one moment: what the sampler takes."""

import time

from testbed.hosts import Hosts
from testbed.netlink import NetlinkPort
from testbed.sampler import LinkReading
from testbed.shaper import Shaper


class LinkReader:
    """Reads the shaper and the interface at which the bytes that passed it arrive.

    Parameters
    ----------
    shaper : Shaper
        Of the way that follows the trace.
    hosts : Hosts
        Of the network.
    host, interface : str
        Where arriving bytes are counted.
    """

    def __init__(self, shaper: Shaper, hosts: Hosts, host: str, interface: str) -> None:
        self._shaper = shaper
        self._arrival = NetlinkPort(interface, hosts.namespace(host))

    def read(self) -> LinkReading:
        """Return the link's counters now; to be called by one thread, the sampler's."""
        before_s = time.monotonic()
        received_bytes = self._arrival.read_interface().rx_bytes
        after_s = time.monotonic()
        counters, drops = self._shaper.read()
        return LinkReading(
            time_s=(before_s + after_s) / 2,
            received_bytes=received_bytes,
            sent_bytes=counters.sent_bytes,
            backlog_bytes=counters.backlog_bytes,
            drops=drops,
        )

    def close(self) -> None:
        """Close the socket."""
        self._arrival.close()
