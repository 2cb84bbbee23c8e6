"""Read frames out of a pcap file: the header fields that the checks need, nothing more."""

import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from scapy.error import Scapy_Exception
from scapy.utils import RawPcapReader

from cachegen import InvalidInputError

ETHERTYPE_IPV4, ETHERTYPE_ARP, ETHERTYPE_LOCAL = 0x0800, 0x0806, 0x88B5
PROTOCOL_TCP = 6
SYN, ACK = 0x02, 0x10
_ETHERNET = struct.Struct("!6s6sH")
_IPV4 = struct.Struct("!BxHxxxxxBxx4s4s")  # version and length, total length, protocol, addresses
_TCP = struct.Struct("!HHIIBB")


class Segment(NamedTuple):
    """A TCP segment; ``size_bytes`` is its payload."""

    source_port: int
    target_port: int
    sequence: int
    acknowledged: int
    flags: int
    size_bytes: int


class Frame(NamedTuple):
    """An Ethernet frame on the wire.

    ``time_s`` counts from 1970; ``size_bytes`` is the whole frame, though only its beginning was captured; addresses
    are None where the frame is no IPv4.
    """

    time_s: float
    size_bytes: int
    source_hardware: str
    target_hardware: str
    ethertype: int
    source_ip: str | None
    target_ip: str | None
    segment: Segment | None


def read_frames(path: Path) -> Iterator[Frame]:
    """Yield the frames of a capture in order of time.

    Raises
    ------
    InvalidInputError
        The file is missing or no capture of Ethernet frames, or a frame of it is cut within its headers.
    """
    try:
        file = path.open("rb")
    except OSError as error:
        raise InvalidInputError(f"{path}: cannot be read: {error.strerror}") from error
    with file:
        try:
            reader = RawPcapReader(file)  # type: ignore[arg-type]  # its hint leaves out the open file it takes
        except (EOFError, Scapy_Exception) as error:
            raise InvalidInputError(f"{path}: no capture can be read: {error}") from error
        fraction = 1e-9 if getattr(reader, "nano", False) else 1e-6
        for number, (data, stamp) in enumerate(reader, start=1):
            try:
                yield _parse(data, stamp.sec + stamp.usec * fraction, stamp.wirelen)
            except struct.error as error:
                raise InvalidInputError(f"{path}: frame {number}: cut within its headers") from error


def _parse(data: bytes, time_s: float, size_bytes: int) -> Frame:
    target, source, ethertype = _ETHERNET.unpack_from(data)
    ends = (source.hex(":"), target.hex(":"), ethertype)
    if ethertype != ETHERTYPE_IPV4:
        return Frame(time_s, size_bytes, *ends, None, None, None)
    first, total_bytes, protocol, source_ip, target_ip = _IPV4.unpack_from(data, _ETHERNET.size)
    segment = None
    if protocol == PROTOCOL_TCP:
        header_bytes = (first & 15) * 4
        tcp = _TCP.unpack_from(data, _ETHERNET.size + header_bytes)
        source_port, target_port, sequence, acknowledged, data_offset, flags = tcp
        payload_bytes = total_bytes - header_bytes - (data_offset >> 4) * 4
        segment = Segment(source_port, target_port, sequence, acknowledged, flags, payload_bytes)
    return Frame(time_s, size_bytes, *ends, socket.inet_ntoa(source_ip), socket.inet_ntoa(target_ip), segment)
