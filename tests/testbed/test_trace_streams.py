"""Files of any length, and files that are no text: what is held, and what is refused."""

import gzip
import hashlib
import os
import threading
import tracemalloc
from pathlib import Path

import pytest

from testbed.errors import TraceError
from testbed.trace import load_trace
from testbed.traces.reading import read_recording
from testbed.traces.source import Source

FCC = "unit_id,dtime,fetch_time,bytes_total,bytes_sec\n"
LUMOS = "run_num,seq_num,Throughput\n"


def read(text, series=None):
    return read_recording(text if isinstance(text, bytes) else text.encode(), Path("file"), series=series)


def test_a_gzip_bomb_and_a_cut_gzip_file_are_refused():
    with pytest.raises(TraceError, match="more than 256 MiB of text"):
        read(gzip.compress(b"1\n" * (140 << 20), 1))
    with pytest.raises(TraceError, match="ends early"):
        read(gzip.compress(b"1\n2\n" * 100)[:-9])
    with pytest.raises(TraceError, match="a broken gzip file"):
        read(b"\x1f\x8b" + bytes(30))


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_link_is_picked_from_a_file_of_many_without_holding_the_others(tmp_path, pack):
    rows = [f"{unit},2015-09-01 00:02:19,1000000,{1_000_000 + unit},{1_000_000 + unit}\n" for unit in range(2000)]
    (tmp_path / "fcc.csv").write_bytes(pack((FCC + 20 * "".join(rows)).encode()))
    tracemalloc.start()
    try:
        trace = load_trace(tmp_path / "fcc.csv", series="7")
        with pytest.raises(
            TraceError, match=r"more than 5 links, told apart by unit_id: 0, 1, 2, 3, 4, \.\.\.; choose one"
        ):
            load_trace(tmp_path / "fcc.csv")
        with pytest.raises(TraceError, match=r"more than 5 links, .*; none of them is '4000'"):
            load_trace(tmp_path / "fcc.csv", series="4000")
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert trace.rates_mbps == (pytest.approx(8.000056),) * 20
    assert trace.sha256 == hashlib.sha256((tmp_path / "fcc.csv").read_bytes()).hexdigest()
    # the rows of all links would take eight times that
    assert peak_bytes < 3 << 20


def test_limits_hold_for_what_is_kept(monkeypatch):
    text = LUMOS + "".join(f"{run},{second},30\n" for run in (1, 2) for second in range(99))
    monkeypatch.setattr("testbed.traces.source.MAX_BYTES", 1000)

    assert len(read(text, series="2")[1].times_s) == 99
    with pytest.raises(TraceError, match="more than 0 MiB of text"):
        read("".join(f"{second}.5 30\n" for second in range(200)))
    monkeypatch.setattr("testbed.traces.importers.base.MAX_ROWS", 98)
    with pytest.raises(TraceError, match=r"more than \d+ rows; cut out the part to be replayed"):
        read(text, series="2")


def test_more_rows_than_can_be_held_are_refused():
    source = Source(b"1\n\n2\n3\n", Path("file"))

    assert [line.text for line in source.lines(most=3)] == ["1", "2", "3"]
    with pytest.raises(TraceError, match="trace file: more than 2 rows; cut out the part to be replayed"):
        list(source.lines(most=2))


def test_a_line_without_end_is_refused(monkeypatch):
    monkeypatch.setattr("testbed.traces.text_stream.MAX_BYTES", 3 << 20)
    with pytest.raises(TraceError, match="line 3: more than 3 MiB in one line"):
        read(FCC + "7,2015-09-01 00:02:19,1000000,10,10\n" + "7" * (5 << 20))


def test_bytes_that_are_no_text_are_named_by_their_line_wherever_they_are():
    text = b"0.5 1\n1.5 2\n" + b"\n" * (3 << 20) + b"caf\xe9\n"
    with pytest.raises(TraceError, match="line 3145731: not UTF-8 text: byte 0xe9"):
        read(text)


def test_what_comes_out_of_a_pipe_is_read_too(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=lambda: (tmp_path / "pipe").write_text("1\n"))
    writer.start()
    trace = load_trace(tmp_path / "pipe")
    writer.join()

    assert trace.rates_mbps == (12.0,)


def test_a_device_without_end_is_refused():
    with pytest.raises(TraceError, match="/dev/zero: more than 256 MiB"):
        load_trace("/dev/zero")
