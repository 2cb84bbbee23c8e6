"""Arrivals: each pattern's batches, and logs of requests read or refused by line."""

from pathlib import Path

import pytest

from cachegen import InvalidInputError, UnknownNameError
from testbed.arrivals import make_arrivals, make_batches
from testbed.request_log import read_arrivals_s
from testbed.workload import make_schedule

SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "requests"
AZURE = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9951690,396,109\n"
)
MOONCAKE = '{"timestamp": 500, "input_length": 6758}\n\n{"timestamp": 1750, "hash_ids": [0]}\n{"timestamp": 1750}\n'


def batches(spec, requests=7, seed=0):
    return make_batches(make_arrivals(spec), requests, 3, 60.0, seed)


def test_sequential_requests_are_alone_and_where_they_always_were():
    made = batches("sequential")
    assert [batch.trace_offset_s for batch in made] == [
        request.trace_offset_s for request in make_schedule(7, 3, 60.0, 0)
    ]
    assert [request for batch in made for request in batch.requests] == make_schedule(7, 3, 60.0, 0)


def test_bursts_arrive_at_once_each_at_its_own_place():
    made = batches("burst:3")
    assert [[request.index for request in batch.requests] for batch in made] == [[0, 1, 2], [3, 4, 5], [6]]
    assert len({batch.trace_offset_s for batch in made}) == 3
    for batch in made:
        assert {(request.arrival_s, request.trace_offset_s) for request in batch.requests} == {
            (0.0, batch.trace_offset_s)
        }


def test_poisson_arrivals_have_their_rate_and_depend_on_the_seed_alone():
    [batch] = batches("poisson:4", requests=2000)
    times_s = [request.arrival_s for request in batch.requests]
    assert times_s[0] == 0.0
    assert times_s == sorted(times_s)
    assert times_s[-1] == pytest.approx(2000 / 4, rel=0.1)
    assert batches("poisson:4", requests=2000) == [batch]
    assert batches("poisson:4", requests=2000, seed=1) != [batch]


def test_a_requests_place_in_the_trace_goes_on_with_its_arrival_and_round_its_end():
    [batch] = batches("poisson:0.1")
    for request in batch.requests:
        assert request.trace_offset_s == pytest.approx((batch.trace_offset_s + request.arrival_s) % 60.0)


def test_a_closed_loop_has_its_users():
    [batch] = batches("closed:2")
    assert (batch.users, len(batch.requests)) == (2, 7)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("poisson", "poisson:: the rate is a positive number"),
        ("poisson:-1", "poisson:-1: the rate"),
        ("poisson:inf", "poisson:inf: the rate"),
        ("burst:0", "burst:0: the number of requests"),
        ("burst:" + 5_000 * "9", "burst:9{50}: the number of requests"),
        ("closed:1.5", "closed:1.5: the number"),
        ("sequential:2", "takes no argument, got '2'"),
    ],
)
def test_a_bad_pattern_is_refused(spec, message):
    with pytest.raises(InvalidInputError, match=message):
        make_arrivals(spec)


def test_an_unknown_pattern_is_refused_with_those_there_are():
    with pytest.raises(
        UnknownNameError, match="no arrivals 'daily'; there are burst, closed, poisson, sequential, trace"
    ):
        make_arrivals("daily")


@pytest.mark.parametrize(
    ("text", "times_s"), [(AZURE, [0.0, 4.314579]), (MOONCAKE, [0.0, 1.25, 1.25])], ids=["azure", "mooncake"]
)
def test_a_log_gives_seconds_since_its_first_request(tmp_path, text, times_s):
    path = tmp_path / "log"
    path.write_text(text)
    assert read_arrivals_s(path, len(times_s)) == pytest.approx(times_s)
    [batch] = make_batches(make_arrivals(f"trace:{path}"), 2, 1, 60.0, 0)
    assert [request.arrival_s for request in batch.requests] == pytest.approx(times_s[:2])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "log:1: neither a column TIMESTAMP nor JSON lines"),
        ("arrived_at\n0.0\n", "log:1: neither a column TIMESTAMP"),
        (AZURE + "yesterday,1,1\n", "log:4: no time: 'yesterday'"),
        (AZURE + "2023-11-16 18:15:46,1,1\n", "log:4: a request 4.99517 s before the one above it"),
        (AZURE + "2023-11-16T18:15:51Z,1,1\n", "log:4: .* has a time zone"),
        (MOONCAKE + "{broken\n", "log:5: not JSON"),
        (MOONCAKE + "[1]\n", 'log:5: "timestamp" must be milliseconds, not None'),
        (MOONCAKE + '{"timestamp": "9"}\n', "log:5: .* not '9'"),
        (MOONCAKE + '{"timestamp": true}\n', "log:5: .* not True"),
        (MOONCAKE + '{"timestamp": NaN}\n', "log:5: .* not nan"),
        (MOONCAKE, "log: holds 3 requests; 9 are wanted"),
    ],
)
def test_a_bad_log_is_refused_by_file_and_line(tmp_path, text, message):
    path = tmp_path / "log"
    path.write_text(text)
    with pytest.raises(InvalidInputError, match=message):
        read_arrivals_s(path, 9)


def test_a_missing_log_is_named(tmp_path):
    with pytest.raises(InvalidInputError, match=r"absent\.csv"):
        read_arrivals_s(tmp_path / "absent.csv", 1)


@pytest.mark.skipif(not SHARED.exists(), reason="the public request logs are not beside the repository")
@pytest.mark.parametrize(
    ("name", "last_s"),
    [
        ("azure2023/AzureLLMInferenceTrace_conv.first1000.csv", 216),
        ("azure2023/AzureLLMInferenceTrace_code.first1000.csv", 522),
        ("mooncake/conversation_trace.first1000.jsonl", 330),
    ],
)
def test_the_public_logs_are_read(name, last_s):
    times_s = read_arrivals_s(SHARED / name, 1000)
    assert len(times_s) == 1000
    assert times_s[-1] == pytest.approx(last_s, abs=1)
