"""A process that writes the headers of all frames of an interface to a pcap file, and says if it missed one.

    python -m testbed.capture INTERFACE FILE

The kernel lays frames, cut to 96 bytes and stamped in nanoseconds, into a ring that this process maps: a frame costs
it about a microsecond. It writes a JSON line ``{"ready": true}`` once it hears, ends with its standard input, and then
writes its account: ``written``, ``dropped`` (the ring was full), ``unwritten`` (the file was).
"""

import argparse
import ctypes
import json
import mmap
import select
import socket
import struct
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

SNAPLEN = 96  # Ethernet, IPv4 and TCP with all its options
MAX_FILE_BYTES = 2 << 30

SOL_PACKET, PACKET_RX_RING, PACKET_STATISTICS, PACKET_VERSION = 263, 5, 6, 10
TPACKET_V3 = 2
SO_ATTACH_FILTER = 26
BPF_RETURN = 0x06
ETH_P_ALL = 3
BLOCK_BYTES, BLOCKS, RETIRE_MS = 1 << 20, 32, 50
DRAIN_TIMEOUT_S = 5.0
FRAME_SLOT_BYTES = 2048  # only its product with the number of slots counts in this version of the ring
BLOCK_IS_OURS = 1
# struct tpacket_block_desc: version, private offset, status, frames, offset of the first
BLOCK_HEAD = struct.Struct("=IIIII")
STATUS_OFFSET = 8
# struct tpacket3_hdr: next offset, s, ns, captured length, length, status, offset of the frame
FRAME_HEAD = struct.Struct("=IIIIIIH")

PCAP_NANOSECONDS, LINKTYPE_ETHERNET = 0xA1B23C4D, 1
PCAP_HEAD = struct.Struct("=IHHiIII")
PCAP_RECORD = struct.Struct("=IIII")


class Ring:
    """The kernel's ring of received and sent frames of one interface."""

    def __init__(self, interface: str) -> None:
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        self._socket.setsockopt(SOL_PACKET, PACKET_VERSION, TPACKET_V3)
        self._attach(SNAPLEN)
        slots = BLOCK_BYTES * BLOCKS // FRAME_SLOT_BYTES
        wanted = struct.pack("=7I", BLOCK_BYTES, BLOCKS, FRAME_SLOT_BYTES, slots, RETIRE_MS, 0, 0)
        self._socket.setsockopt(SOL_PACKET, PACKET_RX_RING, wanted)
        self._map = mmap.mmap(self._socket.fileno(), BLOCK_BYTES * BLOCKS)
        self._next = 0
        self._seen = self._dropped = 0
        self._socket.bind((interface, ETH_P_ALL))

    def fileno(self) -> int:
        """Return the file descriptor, readable when a block is full or old enough."""
        return self._socket.fileno()

    def take_block(self) -> list[bytes]:
        """Return the frames of the next block as pcap records and hand the block back; nothing if it is not full."""
        start = self._next * BLOCK_BYTES
        _, _, status, count, offset = BLOCK_HEAD.unpack_from(self._map, start)
        if not status & BLOCK_IS_OURS:
            return []
        records = []
        place = start + offset
        for _ in range(count):
            step, seconds, nanoseconds, captured, length, _, at = FRAME_HEAD.unpack_from(self._map, place)
            records.append(PCAP_RECORD.pack(seconds, nanoseconds, captured, length))
            records.append(self._map[place + at : place + at + captured])
            place += step
        struct.pack_into("=I", self._map, start + STATUS_OFFSET, 0)
        self._next = (self._next + 1) % BLOCKS
        return records

    def stop_hearing(self) -> None:
        """Let no further frame in; those that are in the ring stay."""
        self._attach(0)

    def counts(self) -> tuple[int, int]:
        """Return how many frames were put into the ring so far, and how many found it full."""
        # struct tpacket_stats_v3: frames, full ring or not; drops; freezes. Reading resets all three.
        seen, drops, _ = struct.unpack("=III", self._socket.getsockopt(SOL_PACKET, PACKET_STATISTICS, 12))
        self._seen += seen - drops
        self._dropped += drops
        return self._seen, self._dropped

    def _attach(self, length: int) -> None:
        """Let the kernel copy no more than so many bytes of a frame; with 0, no frame at all."""
        # struct sock_filter: code, jump if true, jump if false, value; struct sock_fprog: length, pointer
        program = ctypes.create_string_buffer(struct.pack("=HBBI", BPF_RETURN, 0, 0, length), 8)
        self._socket.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("HP", 1, ctypes.addressof(program)))


class PcapFile:
    """A pcap file of bounded size; frames beyond it are counted and left out."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._size = file.write(PCAP_HEAD.pack(PCAP_NANOSECONDS, 2, 4, 0, 0, SNAPLEN, LINKTYPE_ETHERNET))
        self.written = self.unwritten = 0

    def add(self, records: list[bytes]) -> None:
        """Append the records of a block, all or none."""
        data = b"".join(records)
        if self._size + len(data) > MAX_FILE_BYTES:
            self.unwritten += len(records) // 2
            return
        self._size += self._file.write(data)
        self.written += len(records) // 2


def capture(interface: str, path: Path) -> dict[str, int]:
    """Write frames until standard input ends; return the account."""
    ring = Ring(interface)
    with path.open("wb") as file:
        target = PcapFile(file)
        _say({"ready": True})
        while True:
            if records := ring.take_block():
                target.add(records)
                continue
            readable, _, _ = select.select([ring, sys.stdin], [], [])
            if sys.stdin in readable:
                break
        ring.stop_hearing()
        _drain(ring, target)
        held, dropped = ring.counts()
    taken = target.written + target.unwritten
    return {"written": target.written, "dropped": dropped + held - taken, "unwritten": target.unwritten}


def _drain(ring: Ring, target: PcapFile) -> None:
    """Take what is still in the ring; the kernel hands a block over when it is full or old enough."""
    deadline_s = time.monotonic() + DRAIN_TIMEOUT_S
    while target.written + target.unwritten < ring.counts()[0] and time.monotonic() < deadline_s:
        if records := ring.take_block():
            target.add(records)
        else:
            select.select([ring], [], [], RETIRE_MS / 1e3)


def _say(message: Mapping[str, object]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Run the capture of the command line."""
    parser = argparse.ArgumentParser(prog="testbed.capture", description="write an interface's frames to a pcap file")
    parser.add_argument("interface")
    parser.add_argument("file", type=Path)
    args = parser.parse_args()
    _say(capture(args.interface, args.file))


if __name__ == "__main__":
    main()
