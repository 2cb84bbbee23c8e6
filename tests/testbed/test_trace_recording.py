"""Pieces become recordings that carry the same bytes, and recordings become files that replay the same."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.errors import TraceError
from testbed.trace import parse_trace, trace_of
from testbed.traces.reading import read_recording
from testbed.traces.recording import FINEST_PIECE_S, Piece, record
from testbed.traces.source import Source
from testbed.traces.writing import recording_csv, write_new

SOURCE = Source(b"x", Path("file"))
RATES = st.sampled_from([0.0, 0.5, 3.25, 120.0, 999.9])
pieces = st.lists(
    st.tuples(st.floats(0.0005, 2.0), RATES).map(lambda made: Piece("place", *made)), min_size=1, max_size=40
).filter(lambda made: any(piece.rate_mbps for piece in made))


def carried_mbit(rows):
    return sum(piece.duration_s * piece.rate_mbps for piece in rows)


def trace_from(recording):
    return trace_of(recording, b"", Path("t.csv"), "csv")


@given(pieces)
def test_a_recording_carries_the_bytes_of_its_pieces_however_fine_they_are(made):
    trace = trace_from(record(SOURCE, made))
    length_s = sum(piece.duration_s for piece in made)
    whole = length_s if len(trace.times_s) > 1 else trace.period_s

    assert trace.period_s == pytest.approx(whole)
    assert trace.capacity_bytes(0, length_s) == pytest.approx(carried_mbit(made) * 125_000, rel=1e-9)


@given(pieces)
def test_fine_steps_become_equal_bins_and_others_stay_as_they_are(made):
    recording = record(SOURCE, made)

    if min(piece.duration_s for piece in made) >= FINEST_PIECE_S:
        assert recording.rates_mbps == tuple(piece.rate_mbps for piece in made)
        assert recording.notes == ()
    else:
        steps_s = [b - a for a, b in zip(recording.times_s, recording.times_s[1:], strict=False)]
        assert steps_s == pytest.approx([recording.period_s / len(recording.times_s)] * len(steps_s))
        assert "were joined" in recording.notes[-1]


@given(pieces, st.floats(0, 20))
def test_a_written_recording_replays_as_the_one_it_came_from(made, time_s):
    trace = trace_from(record(SOURCE, made))
    again = parse_trace(recording_csv(record(SOURCE, made)).encode(), Path("t.csv"))

    if len(trace.times_s) > 1:
        assert again.period_s == pytest.approx(trace.period_s, abs=1e-6)
    assert again.capacity_bytes(0, time_s) == pytest.approx(trace.capacity_bytes(0, time_s), rel=1e-5, abs=1)


def test_a_bin_that_cuts_a_step_gets_its_share():
    # 5 ms at 20 Mbit/s across the border of two bins of 0.1 s: 2.5 ms in each
    made = [Piece("", 0.0975, 0.0), Piece("", 0.005, 20.0), Piece("", 0.0975, 0.0)]

    assert record(SOURCE, made).rates_mbps == pytest.approx([0.5, 0.5])


def test_a_last_row_of_its_own_length_is_written_as_two_halves():
    _, recording = read_recording(
        b'[{"duration_ms":500,"bandwidth_kbps":1000},{"duration_ms":2000,"bandwidth_kbps":3000}]', Path("x")
    )

    assert recording_csv(recording) == "time_s,rate_mbps\n0,1\n0.5,3\n1.5,3\n"


def test_delays_are_written_beside_their_rates():
    entries = [
        {"duration_ms": 500, "bandwidth_kbps": 0, "latency_ms": 15},
        {"duration_ms": 500, "bandwidth_kbps": 3000, "latency_ms": 30},
    ]
    _, recording = read_recording(json.dumps(entries).encode(), Path("x"))

    assert recording_csv(recording) == "time_s,rate_mbps,delay_ms\n0,0,7.5\n0.5,3,15\n"


def test_a_file_that_is_there_stays_unless_it_may_go(tmp_path):
    path = tmp_path / "a.csv"
    write_new(path, "one", overwrite=False)

    with pytest.raises(TraceError, match=r"a\.csv: is there already; --overwrite replaces it"):
        write_new(path, "two", overwrite=False)
    assert path.read_text() == "one"
    write_new(path, "two", overwrite=True)
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("a.csv", "two")]


def test_a_place_that_cannot_be_written_is_refused_by_name(tmp_path):
    with pytest.raises(TraceError, match=r"nowhere/a\.csv: cannot be written: No such file"):
        write_new(tmp_path / "nowhere" / "a.csv", "x", overwrite=False)
