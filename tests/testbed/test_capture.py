"""Captures: bounded files, and a real ring that misses nothing."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

from testbed import capture
from testbed.packets.frames import read_frames

ROOT = Path(__file__).resolve().parents[2]

# Runs in namespaces of its own: datagrams to itself, which loopback shows twice, going out and coming in.
LAB = """
import socket, subprocess, sys
process = subprocess.Popen([sys.executable, "-m", "testbed.capture", "lo", sys.argv[1]], stdin=-1, stdout=-1)
process.stdout.readline()
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as inbox, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
    inbox.bind(("127.0.0.1", 9000))
    for number in range(5000):
        out.sendto(bytes(1000), ("127.0.0.1", 9000))
        inbox.recv(2000)
print(process.communicate()[0].decode())
"""


def test_a_ring_misses_no_frame_and_keeps_headers_and_lengths(tmp_path):
    path = tmp_path / "lo.pcap"
    command = [sys.executable, "-m", "testbed.isolation", sys.executable, "-c", LAB, str(path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=True)
    frames = list(read_frames(path))

    assert json.loads(done.stdout) == {"written": 10_000, "dropped": 0, "unwritten": 0}
    assert [frame.size_bytes for frame in frames] == [1042] * 10_000
    assert all(after.time_s >= before.time_s for before, after in zip(frames[::2], frames[2::2], strict=False))
    assert path.stat().st_size == 24 + 10_000 * (16 + capture.SNAPLEN)


def test_a_full_file_takes_no_more_and_says_how_much_it_left_out(monkeypatch):
    monkeypatch.setattr(capture, "MAX_FILE_BYTES", 24 + 2 * 16 + 6)
    file = io.BytesIO()
    target = capture.PcapFile(file)
    target.add([bytes(16), b"abc", bytes(16), b"def"])
    target.add([bytes(16), b"ghi"])

    assert (target.written, target.unwritten) == (2, 1)
    assert file.getvalue()[24:] == bytes(16) + b"abc" + bytes(16) + b"def"
