"""What can be told from frames alone; each check is fed one frame after the other and holds no more than sums."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Sequence

from testbed.packets.frames import ACK, ETHERTYPE_ARP, ETHERTYPE_IPV4, ETHERTYPE_LOCAL, SYN, Frame

_SEQUENCES = 1 << 32


class ArrivedBytes:
    """Bytes that arrived in each of some spans of time.

    Parameters
    ----------
    starts_s, ends_s : sequence of float
        The spans, in order and apart from each other.
    source_hardware, target_hardware : str
        Between which hosts frames count, this way.
    """

    def __init__(
        self, starts_s: Sequence[float], ends_s: Sequence[float], source_hardware: str, target_hardware: str
    ) -> None:
        self._starts_s, self._ends_s = starts_s, ends_s
        self._ends = (source_hardware, target_hardware)
        self.sums = [0] * len(starts_s)
        self.frames = 0

    def add(self, frame: Frame) -> None:
        """Count a frame."""
        if (frame.source_hardware, frame.target_hardware) != self._ends:
            return
        self.frames += 1
        place = bisect_right(self._starts_s, frame.time_s) - 1
        if place >= 0 and frame.time_s < self._ends_s[place]:
            self.sums[place] += frame.size_bytes


class Handshakes:
    """Round trips of TCP's opening, seen at the host that opens: from SYN to its answer, in ms."""

    def __init__(self, opener_ip: str) -> None:
        self._opener_ip = opener_ip
        self._asked_s: dict[tuple[int, int, int], float] = {}
        self.rtt_ms: list[float] = []

    def add(self, frame: Frame) -> None:
        """Take note of a frame."""
        segment = frame.segment
        if segment is None or not segment.flags & SYN:
            return
        if frame.source_ip == self._opener_ip and not segment.flags & ACK:
            key = (segment.source_port, segment.target_port, segment.sequence)
            # asked twice: which of the two was answered is not known
            self._asked_s[key] = frame.time_s if key not in self._asked_s else float("nan")
        elif frame.target_ip == self._opener_ip and segment.flags & ACK:
            key = (segment.target_port, segment.source_port, (segment.acknowledged - 1) % _SEQUENCES)
            asked_s = self._asked_s.pop(key, float("nan"))
            if asked_s == asked_s:  # not NaN
                self.rtt_ms.append((frame.time_s - asked_s) * 1e3)


class Retransmissions:
    """Segments with payload that a host sent, and those of them that it had sent before."""

    def __init__(self, sender_ip: str) -> None:
        self._sender_ip = sender_ip
        self._next: dict[tuple[str | None, int, int], int] = {}
        self.segments = self.again = 0

    def add(self, frame: Frame) -> None:
        """Take note of a frame."""
        segment = frame.segment
        if segment is None or frame.source_ip != self._sender_ip or not segment.size_bytes:
            return
        self.segments += 1
        flow = (frame.target_ip, segment.source_port, segment.target_port)
        expected = self._next.get(flow, segment.sequence)
        # sequence numbers wrap: what lies less than half the circle behind is old
        if (segment.sequence - expected) % _SEQUENCES >= _SEQUENCES // 2:
            self.again += 1
        else:
            self._next[flow] = (segment.sequence + segment.size_bytes) % _SEQUENCES


class Strangers:
    """Frames that are not between the run's own hosts.

    Parameters
    ----------
    ips, hardware : collection of str
        The hosts' addresses.
    """

    def __init__(self, ips: Collection[str], hardware: Collection[str]) -> None:
        self._ips, self._hardware = frozenset(ips), frozenset(hardware)
        self.frames = 0
        self.found: Counter[str] = Counter()

    def add(self, frame: Frame) -> None:
        """Take note of a frame."""
        self.frames += 1
        # the frame that wakes the shaper after an outage is from and to nobody
        if frame.ethertype == ETHERTYPE_LOCAL:
            return
        if frame.ethertype not in (ETHERTYPE_IPV4, ETHERTYPE_ARP):
            self.found[f"frame of type {frame.ethertype:#06x}"] += 1
        for address in (frame.source_hardware, frame.target_hardware):
            if address not in self._hardware:
                self.found[f"hardware address {address}"] += 1
        for ip in (frame.source_ip, frame.target_ip):
            if ip is not None and ip not in self._ips:
                self.found[f"address {ip}"] += 1
