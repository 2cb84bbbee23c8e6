"""A link as planned is VALID; one with a planted fault is INVALID and says why."""

import pytest
from link_model import DELAY_S, always, make_log, run_link, transfers

from testbed.fidelity import busy_second_errors, judge, percentile, summarize
from testbed.link_account import LinkRow
from testbed.sampler import empty_samples

SAW = [5, 40, 12, 25, 8, 30, 18, 6, 45, 20] * 3
CLEAN = {"frames": {"wire-eth0": 100}, "drops": {"wire-eth0": 0}, "late_ms": {"p50": 0.1, "p99": 0.3, "max": 1.0}}


def verdict(samples, log, rtt_ms=20.3, report=CLEAN):
    return judge(summarize(samples, [log], DELAY_S), planned_rtt_ms=20.0, rtt_ms=rtt_ms, delay_report=report)


def test_exact_link_under_load_is_valid():
    log = make_log(SAW)
    samples = run_link(log, always)
    summary = summarize(samples, [log], DELAY_S)

    assert verdict(samples, log).verdict == "VALID"
    assert len(summary.rate_errors) == 3
    assert summary.rate_error_mean < 0.01


def test_slow_link_may_answer_a_rest_with_its_burst():
    log = make_log([0.5] * 60)
    found = verdict(run_link(log, transfers(45_420, 2.0)), log)

    assert (found.verdict, found.reasons) == ("VALID", ())


def test_gaps_between_transfers_are_no_error_of_the_link():
    log = make_log([20] * 60)
    samples = run_link(log, transfers(400_000, 0.3))
    summary = summarize(samples, [log], DELAY_S)

    assert verdict(samples, log).verdict == "VALID"
    assert summary.delivered_bytes < 0.6 * summary.capacity_bytes
    assert summary.rate_error_mean < 0.01


@pytest.mark.parametrize("speed", [0.9, 1.1])
def test_link_a_tenth_off_its_rate_is_invalid(speed):
    log = make_log(SAW)
    found = verdict(run_link(log, always, speed=speed), log)

    assert found.verdict == "INVALID"
    assert "rate error of" in found.reasons[0]


def test_slow_link_shows_though_its_transfers_are_short():
    log = make_log([20] * 60)

    assert verdict(run_link(log, transfers(400_000, 0.3), speed=0.9), log).verdict == "INVALID"


def test_late_replay_is_invalid():
    log = make_log(SAW, late_s=0.05)
    found = verdict(run_link(log, always), log)

    assert found.verdict == "INVALID"
    assert any("50 ms late: 99th percentile of the trace's steps" in reason for reason in found.reasons)


def test_frames_lost_behind_the_shaper_are_missed_at_the_receiver():
    log = make_log(SAW)

    assert verdict(run_link(log, always, lose_every=20), log).verdict == "INVALID"


def test_link_without_a_shaper_is_invalid_by_its_surplus():
    log = make_log([20] * 20)
    found = verdict(run_link(log, transfers(200_000, 0.4), speed=50), log)

    assert found.verdict == "INVALID"
    assert "beyond capacity" in found.reasons[0]


def test_full_link_that_never_had_a_queue_is_invalid():
    log = make_log([20] * 60)
    found = verdict(run_link(log, lambda time_s: 2480.0 if time_s >= 0 else 0.0), log)

    assert found.verdict == "INVALID"
    assert "nothing held the bytes back" in found.reasons[0]


def test_short_replay_that_was_half_used_is_valid_with_a_note():
    log = make_log([20] * 10)
    found = verdict(run_link(log, lambda time_s: 2480.0 if 0 <= time_s < 0.6 else 0.0), log)

    assert (found.verdict, found.reasons) == ("VALID", ())
    assert "the rate was not judged" in found.notes[0]


def test_link_that_was_hardly_used_is_valid_with_a_note():
    log = make_log([20] * 20)
    found = verdict(run_link(log, transfers(3028, 0.5)), log)

    assert (found.verdict, found.reasons) == ("VALID", ())
    assert "the rate was not judged" in found.notes[0]


def test_replay_without_samples_is_invalid():
    found = verdict(empty_samples(), make_log(SAW))

    assert found.reasons == ("the link was not sampled while the trace was replayed",)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"rtt_ms": 25.0}, "5 ms off the planned round trip of 20 ms; the limit is 2"),
        ({"rtt_ms": 0.1}, "19.9 ms off the planned round trip"),
        ({"rtt_ms": float("nan")}, "nan ms off"),
        ({"report": {**CLEAN, "drops": {"wire-eth0": 0, "wire-eth1": 3}}}, "3 frames lost in the delay node"),
        ({"report": {**CLEAN, "late_ms": {"max": 60.0}}}, "60 ms late: the latest frame leaving the delay node"),
        ({"report": {}}, "the delay node gave no account of its frames"),
        ({"report": {**CLEAN, "late_ms": {"p99": 14.2}}}, "14.2 ms late: 99th percentile of frames"),
    ],
)
def test_each_other_fault_is_a_reason_of_its_own(changes, reason):
    log = make_log(SAW)
    found = verdict(run_link(log, always), log, **changes)

    assert found.verdict == "INVALID"
    assert len(found.reasons) == 1
    assert reason in found.reasons[0]


def test_netem_reports_no_lateness_and_needs_none():
    log = make_log(SAW)
    report = {"frames": {"wire-eth0": 9}, "drops": {"wire-eth0": 0}}

    assert verdict(run_link(log, always), log, report=report).verdict == "VALID"


def busy(busy_s, capacity, delivered):
    return LinkRow(0.0, 0.1, capacity, delivered, busy_s, capacity, delivered)


def test_busy_time_of_many_rows_makes_whole_seconds():
    rows = [busy(0.1, 100, 110)] * 10 + [busy(0.06, 50, 40)] * 10

    assert busy_second_errors(rows) == pytest.approx([0.1, 0.2])


def test_a_rest_below_half_a_second_is_not_judged():
    assert busy_second_errors([busy(0.1, 100, 150)] * 4) == []


def test_percentile_is_the_nearest_rank():
    assert [percentile([4, 1, 3, 2], share) for share in (0.0, 0.5, 0.95, 1.0)] == [1, 2, 4, 4]
