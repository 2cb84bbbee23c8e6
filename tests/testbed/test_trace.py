"""Traces: what is refused on load, exact capacity, repetition."""

import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachegen.errors import UnknownNameError
from testbed.errors import TraceError
from testbed.trace import BYTES_PER_MBIT, Trace, load_trace, parse_trace, trace_names
from testbed.traces.facts import trace_facts, trace_lines

HEADER = "time_s,rate_mbps\n"


def parse(text, name="t.csv"):
    return parse_trace(text.encode(), Path(name))


@st.composite
def traces(draw):
    steps = draw(st.lists(st.floats(0.01, 3), min_size=1, max_size=8))
    rates = draw(st.lists(st.floats(0.5, 200), min_size=len(steps), max_size=len(steps)))
    times = [0.0, *itertools.accumulate(steps[:-1])]
    return parse(HEADER + "".join(f"{t},{r}\n" for t, r in zip(times, rates, strict=True)))


def test_shipped_lte_trace_loads_by_name_and_says_what_it_is():
    trace = load_trace("lte")

    assert (trace.name, len(trace.times_s), trace.period_s) == ("lte", 1200, pytest.approx(120.0))
    assert len(trace.sha256) == 64
    assert trace.delays_ms is None


def test_a_path_loads_the_file_at_the_path(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text("time_s,rate_mbps,delay_ms\n0,10,5\n0.5,0,7.5\n")

    trace = load_trace(path)

    assert (trace.name, trace.rates_mbps, trace.delays_ms) == ("mine", (10.0, 0.0), (5.0, 7.5))


def test_last_row_lasts_as_long_as_the_row_before_it():
    assert parse(HEADER + "0,1\n2,1\n2.5,1\n").period_s == 3.0


def test_a_trace_says_what_its_file_was_taken_for():
    trace = parse("1289406399 5000 59.8 10.7 9000 1000\n1289406409 12000 59.8 10.7 3000 1000\n", "bus")

    assert trace_facts(trace) == {
        "name": "bus",
        "sha256": trace.sha256,
        "period_s": 2.0,
        "format": "norway-hsdpa",
        "mean_mbps": pytest.approx(0.048),
        "min_mbps": pytest.approx(0.024),
        "max_mbps": pytest.approx(0.072),
        "notes": ["6 s in which nothing was measured are left out"],
    }
    assert trace_lines(trace) == [
        "trace bus: format norway-hsdpa, mean 0.048 Mbit/s (0.024 to 0.072), 2 s",
        "  6 s in which nothing was measured are left out",
    ]


def test_byte_order_mark_and_blank_lines_are_no_error():
    assert parse("\ufeff" + HEADER + "0,1\n\n1,2\n\n").rates_mbps == (1.0, 2.0)


def test_unknown_name_lists_the_known_ones():
    with pytest.raises(UnknownNameError, match=r"no trace named 'nope'; known: .*lte"):
        load_trace("nope")
    assert "lte" in trace_names()


def test_a_name_that_is_a_file_here_is_told_apart_by_its_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("norway_bus_1").write_text("0.5 1\n1.5 3\n")

    with pytest.raises(UnknownNameError, match=r"a file needs its path, as in \./norway_bus_1$"):
        load_trace("norway_bus_1")
    assert load_trace("./norway_bus_1").rates_mbps == (1.0, 3.0)


@pytest.mark.parametrize(
    ("file_name", "name"),
    [
        ("a.csv", "a"),
        ("a.json.gz", "a"),
        ("a.down", "a.down"),
        ("bus_1", "bus_1"),
        ("2010-09-13_1003CEST.json", "2010-09-13_1003CEST"),
    ],
)
def test_a_trace_is_called_as_its_file_without_suffixes_that_say_nothing(file_name, name):
    assert parse(HEADER + "0,1\n", file_name).name == name


def test_missing_file_is_named_with_the_known_traces(tmp_path):
    with pytest.raises(TraceError, match=r"gone\.csv: No such file.*lte"):
        load_trace(tmp_path / "gone.csv")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty"),
        ("0,1\n", "line 1: '0,1' begins no known format.*; the header of csv must be time_s,rate_mbps"),
        ("rate_mbps,time_s\n0,1\n", "line 1: 'rate_mbps,time_s' begins no known format"),
        (HEADER, "a header and no rows"),
        (HEADER + "0.5,1\n", "line 2, time_s: the first stamp must be 0, not 0.5"),
        (HEADER + "0,1\n1,2\n1,3\n", "line 4, time_s: 1 does not come after 1"),
        (HEADER + "0,1\n2,2\n1,3\n", "line 4, time_s: 1 does not come after 2"),
        (HEADER + "0,1\n0.0001,2\n", "line 3, time_s: a step of 0.0001 s"),
        (HEADER + "0,1\n1,nan\n", "line 3, rate_mbps: nan is not a finite number"),
        (HEADER + "0,inf\n", "line 2, rate_mbps: inf is not"),
        (HEADER + "0,-3\n", "line 2, rate_mbps: -3 is negative"),
        (HEADER + "0,fast\n", "line 2, rate_mbps: 'fast' is not a number"),
        (HEADER + "0,1_0\n", "line 2, rate_mbps: 1_0 is not"),
        (HEADER + "0,\n", "line 2, rate_mbps: '' is not a number"),
        (HEADER + "0,1,2\n", "line 2: 3 values for the 2 columns"),
        (HEADER + "0,2e7\n", "line 2, rate_mbps: 2e.07 Mbit/s is above 100000: is the unit right"),
        (HEADER + "0,0\n1,0\n", "every rate_mbps is 0"),
        ("time_s,rate_mbps,delay_ms\n0,1,20000\n", "line 2, delay_ms: a delay of 20000 ms is above 10000"),
        ("time_s,rate_mbps,delay_ms\n0,1,-1\n", "line 2, delay_ms: -1 is negative"),
    ],
)
def test_bad_file_is_refused_by_name_line_and_value(text, message):
    with pytest.raises(TraceError, match="trace bad.csv.*" + message):
        parse(text, "bad.csv")


def test_bytes_that_are_not_text_are_refused():
    with pytest.raises(TraceError, match=r"trace bad\.csv, line 2: not UTF-8 text: byte 0xff"):
        parse_trace(HEADER.encode() + b"\xff", Path("bad.csv"))


@pytest.mark.parametrize(
    ("begin", "kind"),
    [
        (b"PK\x03\x04\x14", "a zip archive"),
        (b"BZh9", "bzip2"),
        (b"\xfd7zXZ\x00", "xz"),
        (b"\xff\xfet\x00", "UTF-16 text"),
    ],
)
def test_what_a_file_is_that_is_no_text_is_named(begin, kind):
    with pytest.raises(TraceError, match=f"trace bad.csv: {kind}; plain UTF-8 text is wanted"):
        parse_trace(begin + HEADER.encode(), Path("bad.csv"))


def test_capacity_is_the_exact_integral_over_a_repeat():
    trace = parse(HEADER + "0,8\n1,16\n")

    assert trace.capacity_bytes(0.5, 2.5) == pytest.approx((0.5 * 8 + 1 * 16 + 0.5 * 8) * BYTES_PER_MBIT)
    assert trace.rate_at_mbps(1.0) == 16
    assert trace.rate_at_mbps(-0.5) == 16
    with pytest.raises(TraceError, match="back to"):
        trace.capacity_bytes(2, 1)


@given(traces(), st.floats(-50, 50), st.floats(0, 20), st.floats(0, 20))
def test_capacity_of_a_span_is_the_sum_of_its_parts(trace, start_s, first_s, second_s):
    middle_s, end_s = start_s + first_s, start_s + first_s + second_s
    parts = trace.capacity_bytes(start_s, middle_s) + trace.capacity_bytes(middle_s, end_s)

    assert trace.capacity_bytes(start_s, end_s) == pytest.approx(parts, rel=1e-9, abs=1)


@given(traces(), st.floats(0, 100))
def test_steps_of_a_replay_carry_the_capacity_of_the_trace(trace, offset_s):
    steps = list(itertools.islice(trace.steps(offset_s), 30))
    carried = sum((b.start_s - a.start_s) * a.rate_mbps * BYTES_PER_MBIT for a, b in itertools.pairwise(steps))

    assert steps[0].start_s == 0
    assert all(a.start_s <= b.start_s for a, b in itertools.pairwise(steps))
    assert carried == pytest.approx(trace.capacity_bytes(offset_s, offset_s + steps[-1].start_s), rel=1e-6, abs=1)


def test_single_row_is_a_constant_link():
    trace = parse(HEADER + "0,4\n")

    assert isinstance(trace, Trace)
    assert trace.capacity_bytes(3.3, 5.3) == pytest.approx(8 * BYTES_PER_MBIT)
