"""The rtnetlink messages a link needs while it runs: change an HTB class, read counters.

A ``tc`` process takes over a millisecond for what one message does in microseconds.
"""

import contextlib
import ctypes
import os
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from testbed.errors import LinkError

CLONE_NEWNET = 0x40000000

NLMSG_ERROR = 2
NLM_F_REQUEST, NLM_F_ACK, NLM_F_ECHO = 0x1, 0x4, 0x8
ANSWER_TIMEOUT_S = 5.0
RTM_NEWQDISC, RTM_GETQDISC, RTM_NEWTCLASS, RTM_GETTCLASS, RTM_GETSTATS = 36, 38, 40, 42, 94

TC_H_ROOT = 0xFFFFFFFF
TCA_KIND, TCA_OPTIONS, TCA_STATS2 = 1, 2, 7
TCA_STATS_BASIC, TCA_STATS_QUEUE = 1, 3
TCA_HTB_PARMS, TCA_HTB_RATE64, TCA_HTB_CEIL64 = 1, 6, 7
TCA_TBF_PARMS, TCA_TBF_RATE64, TCA_TBF_BURST = 1, 4, 6
IFLA_STATS_LINK_64 = 1
LINKLAYER_ETHERNET = 1

TICK_NS = 64  # HTB keeps a burst as the time it takes at the class's rate, in ticks of 64 ns
U32_MAX = 0xFFFFFFFF
ATTRIBUTE_TYPE_MASK = 0x3FFF  # the two top bits say nested and byte order
MESSAGE_HEADER = struct.Struct("=IHHII")  # struct nlmsghdr: length, type, flags, sequence, port
TC_MESSAGE = struct.Struct("=B3xiIII")  # struct tcmsg: family, ifindex, handle, parent, info
RATE_SPEC = struct.Struct("=BBHhHI")  # struct tc_ratespec: cell_log, linklayer, overhead, cell_align, mpu, rate
NO_RATE = bytes(RATE_SPEC.size)
TBF_TAIL = struct.Struct("=III")  # end of struct tc_tbf_qopt: limit, buffer, mtu
HTB_TAIL = struct.Struct("=IIIII")  # end of struct tc_htb_opt: buffer, cbuffer, quantum, level, prio
RECEIVE_BYTES = 1 << 15


@dataclass(frozen=True)
class HtbSetting:
    """Rate and depth of an HTB class; its ceiling is its rate."""

    rate_bps: int
    burst_bytes: int
    quantum_bytes: int


@dataclass(frozen=True)
class TbfSetting:
    """Rate, depth and queue limit of a TBF; every change fills its bucket."""

    rate_bps: int
    burst_bytes: int
    limit_bytes: int


@dataclass(frozen=True)
class HtbCounters:
    """What an HTB class has sent so far, and what stands in its queue now."""

    sent_bytes: int
    sent_packets: int
    backlog_bytes: int
    drops: int


@dataclass(frozen=True)
class InterfaceCounters:
    """Counters of a network interface since it was made; bytes include the Ethernet headers."""

    rx_packets: int
    tx_packets: int
    rx_bytes: int
    tx_bytes: int
    rx_dropped: int
    tx_dropped: int


@contextlib.contextmanager
def network_namespace(path: str) -> Iterator[None]:
    """Move the calling thread, and no other, into the network namespace at ``path`` for the with-block."""
    libc = ctypes.CDLL(None, use_errno=True)

    def enter(fd: int) -> None:
        if libc.setns(fd, CLONE_NEWNET):
            number = ctypes.get_errno()
            raise LinkError(f"cannot enter network namespace {path}: {os.strerror(number)}")

    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        target = os.open(path, os.O_RDONLY)
        try:
            enter(target)
            try:
                yield
            finally:
                enter(home)
        finally:
            os.close(target)
    finally:
        os.close(home)


class NetlinkPort:
    """One interface of a network namespace, reached by a netlink socket that stays in that namespace.

    Opening moves the calling thread for a moment; afterwards any thread may use the port, one at a time.

    Parameters
    ----------
    interface : str
        Name of the interface, ``storage-eth0``.
    namespace : str
        Path of its network namespace, ``/proc/PID/ns/net``.
    """

    def __init__(self, interface: str, namespace: str) -> None:
        self.interface = interface
        with network_namespace(namespace):
            self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
            try:
                self._ifindex = socket.if_nametoindex(interface)
            except OSError as error:
                self._socket.close()
                raise LinkError(f"no interface {interface} in {namespace}") from error
        self._socket.settimeout(ANSWER_TIMEOUT_S)
        self._sequence = 0

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def set_htb(self, class_id: int, setting: HtbSetting) -> None:
        """Change rate, ceiling, burst and quantum of a leaf class in place; its tokens and its queue stay.

        Raises
        ------
        LinkError
            The kernel refused; the message holds its reason.
        """
        body = self._tc_message(class_id, class_id & 0xFFFF0000)
        body += _attribute(TCA_KIND, b"htb\0") + _attribute(TCA_OPTIONS, htb_options(setting))
        self._request(RTM_NEWTCLASS, body, NLM_F_ACK, f"set HTB class {_class_name(class_id)}")

    def set_tbf(self, handle: int, parent: int, setting: TbfSetting) -> None:
        """Change a TBF in place; its queue stays, its bucket is full.

        Raises
        ------
        LinkError
            The kernel refused; the message holds its reason.
        """
        body = self._tc_message(handle, parent)
        body += _attribute(TCA_KIND, b"tbf\0") + _attribute(TCA_OPTIONS, tbf_options(setting))
        self._request(RTM_NEWQDISC, body, NLM_F_ACK, f"set TBF {handle >> 16:x}:")

    def read_htb(self, class_id: int) -> tuple[HtbSetting, HtbCounters]:
        """Return what the kernel holds of an HTB class: its setting and its counters."""
        answer = self._request(
            RTM_GETTCLASS, self._tc_message(class_id, 0), NLM_F_ECHO, f"read HTB class {_class_name(class_id)}"
        )
        found = _attributes(answer, TC_MESSAGE.size)
        return parse_htb_options(found[TCA_OPTIONS]), _parse_counters(found[TCA_STATS2])

    def read_root_drops(self, handle: int) -> int:
        """Return how many packets the root queueing discipline has refused, in all its classes."""
        answer = self._request(
            RTM_GETQDISC, self._tc_message(handle, TC_H_ROOT), NLM_F_ECHO, f"read qdisc {handle >> 16:x}:"
        )
        return _parse_counters(_attributes(answer, TC_MESSAGE.size)[TCA_STATS2]).drops

    def read_interface(self) -> InterfaceCounters:
        """Return the interface's counters."""
        # struct if_stats_msg: family, pad, ifindex, filter mask
        body = struct.pack("=B3xII", 0, self._ifindex, 1 << IFLA_STATS_LINK_64 - 1)
        answer = self._request(RTM_GETSTATS, body, 0, "read counters")
        stats = struct.unpack_from("=8Q", _attributes(answer, 12)[IFLA_STATS_LINK_64])
        rx_packets, tx_packets, rx_bytes, tx_bytes, _, _, rx_dropped, tx_dropped = stats
        return InterfaceCounters(rx_packets, tx_packets, rx_bytes, tx_bytes, rx_dropped, tx_dropped)

    def _tc_message(self, handle: int, parent: int) -> bytes:
        return TC_MESSAGE.pack(0, self._ifindex, handle, parent, 0)

    def _request(self, kind: int, body: bytes, flags: int, doing: str) -> bytes:
        """Send one message and return its answer; the kernel sends tc objects only with NLM_F_ECHO."""
        self._sequence += 1
        length = MESSAGE_HEADER.size + len(body)
        self._socket.send(MESSAGE_HEADER.pack(length, kind, NLM_F_REQUEST | flags, self._sequence, 0) + body)
        try:
            answer = self._socket.recv(RECEIVE_BYTES)
        except TimeoutError:
            raise LinkError(f"{self.interface}: {doing}: no answer from the kernel") from None
        length, kind, _, sequence, _ = MESSAGE_HEADER.unpack_from(answer)
        if sequence != self._sequence:
            raise LinkError(f"{self.interface}: {doing}: answer {sequence} to question {self._sequence}")
        if kind == NLMSG_ERROR:
            (number,) = struct.unpack_from("=i", answer, MESSAGE_HEADER.size)
            if number:
                raise LinkError(f"{self.interface}: {doing}: {os.strerror(-number)}")
        return answer[MESSAGE_HEADER.size : length]


def htb_options(setting: HtbSetting) -> bytes:
    """Return the netlink attributes that describe an HTB class of that setting."""
    rate = max(1, setting.rate_bps // 8)
    ticks = min(U32_MAX, round(setting.burst_bytes / rate * 1e9 / TICK_NS))
    spec = RATE_SPEC.pack(0, LINKLAYER_ETHERNET, 0, 0, 0, min(rate, U32_MAX))
    options = _attribute(TCA_HTB_PARMS, spec + spec + HTB_TAIL.pack(ticks, ticks, setting.quantum_bytes, 0, 0))
    if rate > U32_MAX:  # above 34.4 Gbit/s the 32 bits of the old field end
        wide = struct.pack("=Q", rate)
        options += _attribute(TCA_HTB_RATE64, wide) + _attribute(TCA_HTB_CEIL64, wide)
    return options


def tbf_options(setting: TbfSetting) -> bytes:
    """Return the netlink attributes that describe a TBF of that setting."""
    rate = max(1, setting.rate_bps // 8)
    spec = RATE_SPEC.pack(0, LINKLAYER_ETHERNET, 0, 0, 0, min(rate, U32_MAX))
    # the burst in bytes says all that the bucket's depth in ticks would say
    options = _attribute(TCA_TBF_PARMS, spec + NO_RATE + TBF_TAIL.pack(setting.limit_bytes, 0, 0))
    options += _attribute(TCA_TBF_BURST, struct.pack("=I", setting.burst_bytes))
    return options + (_attribute(TCA_TBF_RATE64, struct.pack("=Q", rate)) if rate > U32_MAX else b"")


def parse_htb_options(options: bytes) -> HtbSetting:
    """Return the setting that the attributes of an HTB class describe.

    Raises
    ------
    LinkError
        Its ceiling is not its rate, so the class does not shape to one rate.
    """
    found = _attributes(options, 0)
    parms = found[TCA_HTB_PARMS]
    rate = RATE_SPEC.unpack_from(parms)[-1]
    ceil = RATE_SPEC.unpack_from(parms, RATE_SPEC.size)[-1]
    if TCA_HTB_RATE64 in found:
        (rate,) = struct.unpack("=Q", found[TCA_HTB_RATE64])
    if TCA_HTB_CEIL64 in found:
        (ceil,) = struct.unpack("=Q", found[TCA_HTB_CEIL64])
    if rate != ceil:
        raise LinkError(f"HTB class with a rate of {rate} and a ceiling of {ceil} bytes/s; they must be equal")
    ticks, _, quantum_bytes, _, _ = HTB_TAIL.unpack_from(parms, 2 * RATE_SPEC.size)
    return HtbSetting(rate * 8, round(ticks * TICK_NS * rate / 1e9), quantum_bytes)


def _parse_counters(stats: bytes) -> HtbCounters:
    found = _attributes(stats, 0)
    sent_bytes, sent_packets = struct.unpack_from("=QI", found[TCA_STATS_BASIC])
    # struct gnet_stats_queue: qlen, backlog, drops, requeues, overlimits
    _, backlog, drops = struct.unpack_from("=III", found[TCA_STATS_QUEUE])
    return HtbCounters(sent_bytes, sent_packets, backlog, drops)


def _attribute(kind: int, payload: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(payload), kind) + payload + b"\0" * (-len(payload) % 4)


def _attributes(data: bytes, start: int) -> dict[int, bytes]:
    found = {}
    while start + 4 <= len(data):
        length, kind = struct.unpack_from("=HH", data, start)
        found[kind & ATTRIBUTE_TYPE_MASK] = data[start + 4 : start + length]
        start += max(4, length + 3 & ~3)
    return found


def _class_name(class_id: int) -> str:
    return f"{class_id >> 16:x}:{class_id & 0xFFFF:x}"
