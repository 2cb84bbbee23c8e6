"""What is read out of frames, from captures whose content is known."""

import struct

import pytest
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.l2 import ARP, Ether
from scapy.utils import PcapWriter

from cachegen import InvalidInputError
from testbed.packets.checks import ArrivedBytes, Handshakes, Retransmissions, Strangers
from testbed.packets.frames import read_frames

STORAGE, GPU = "02:00:00:00:00:0a", "02:00:00:00:00:0b"


def down(payload=b"", **tcp):
    return Ether(src=STORAGE, dst=GPU) / IP(src="10.0.0.1", dst="10.0.0.2") / TCP(sport=80, dport=5000, **tcp) / payload


def up(**tcp):
    return Ether(src=GPU, dst=STORAGE) / IP(src="10.0.0.2", dst="10.0.0.1") / TCP(sport=5000, dport=80, **tcp)


@pytest.fixture
def frames(tmp_path):
    """Write frames with their times to a capture and read them back."""

    def written(*timed):
        with PcapWriter(str(tmp_path / "host.pcap"), linktype=1, nano=True) as writer:
            for time_s, frame in timed:
                frame.time = time_s
                writer.write(frame)
        return list(read_frames(tmp_path / "host.pcap"))

    return written


def fed(check, frames):
    for frame in frames:
        check.add(frame)
    return check


def test_a_segment_is_read_with_its_payload_and_time(frames):
    [frame] = frames((1000.000000123, down(b"x" * 500, seq=7, ack=9, flags="A", options=[("Timestamp", (1, 2))])))

    assert frame.time_s == pytest.approx(1000.000000123, abs=1e-6)
    assert (frame.source_ip, frame.target_ip) == ("10.0.0.1", "10.0.0.2")
    assert (frame.segment.sequence, frame.segment.acknowledged, frame.segment.size_bytes) == (7, 9, 500)
    assert frame.size_bytes == 14 + 20 + 32 + 500


def test_bytes_count_in_the_span_in_which_they_arrive(frames):
    found = frames((0.9, down()), (1.0, down(b"x" * 46)), (1.4, up()), (1.49, down(b"x" * 46)), (1.5, down()))
    arrived = fed(ArrivedBytes([1.0, 2.0], [1.5, 2.5], STORAGE, GPU), found)

    assert (arrived.sums, arrived.frames) == ([200, 0], 4)


def test_a_handshake_gives_a_round_trip_and_one_asked_twice_none(frames):
    found = frames(
        (1.0, up(seq=10, flags="S")),
        (1.02, down(seq=5, ack=11, flags="SA")),
        (2.0, up(seq=20, flags="S")),
        (3.0, up(seq=20, flags="S")),
        (3.02, down(seq=5, ack=21, flags="SA")),
        (4.0, up(seq=2**32 - 1, flags="S")),
        (4.03, down(seq=5, ack=0, flags="SA")),
    )

    assert fed(Handshakes("10.0.0.2"), found).rtt_ms == pytest.approx([20, 30], abs=0.01)


def test_segments_sent_again_are_told_from_new_ones_across_the_wrap(frames):
    start = 2**32 - 150
    found = frames(
        (1.0, down(b"x" * 100, seq=start, flags="A")),
        (1.1, down(b"x" * 100, seq=start + 100, flags="A")),
        (1.2, down(b"x" * 100, seq=50, flags="A")),
        (1.3, down(b"x" * 100, seq=start + 100, flags="A")),
        (1.4, down(seq=start, flags="A")),
    )
    again = fed(Retransmissions("10.0.0.1"), found)

    assert (again.segments, again.again) == (4, 1)


def test_whatever_is_not_between_the_hosts_is_named(frames):
    outside = Ether(src=STORAGE, dst=GPU) / IP(src="10.0.0.1", dst="192.0.2.7") / UDP()
    foreign = Ether(src=STORAGE, dst="ff:ff:ff:ff:ff:ff", type=0x86DD) / bytes(50)
    asking = Ether(src=STORAGE, dst=GPU) / ARP()
    wake = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02", type=0x88B5) / bytes(46)
    found = frames(*((1.0 + i, frame) for i, frame in enumerate((down(), asking, wake, outside, foreign))))
    strangers = fed(Strangers(["10.0.0.1", "10.0.0.2"], [STORAGE, GPU]), found)

    assert strangers.frames == 5
    assert strangers.found == {
        "address 192.0.2.7": 1,
        "frame of type 0x86dd": 1,
        "hardware address ff:ff:ff:ff:ff:ff": 1,
    }


@pytest.mark.parametrize("content", [b"", b"not a capture at all", b"\x4d\x3c\xb2\xa1"])
def test_what_is_no_capture_is_refused_with_its_name(tmp_path, content):
    path = tmp_path / "host.pcap"
    path.write_bytes(content)
    with pytest.raises(InvalidInputError, match=r"host\.pcap: no capture can be read"):
        list(read_frames(path))
    with pytest.raises(InvalidInputError, match=r"missing\.pcap"):
        list(read_frames(tmp_path / "missing.pcap"))


def test_a_frame_cut_within_its_headers_is_named(tmp_path):
    path = tmp_path / "host.pcap"
    head = struct.pack("=IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 96, 1)
    cut = bytes(down())[:40]
    path.write_bytes(head + struct.pack("=IIII", 1, 0, len(cut), 60) + cut)
    with pytest.raises(InvalidInputError, match=r"host\.pcap: frame 1: cut within its headers"):
        list(read_frames(path))
