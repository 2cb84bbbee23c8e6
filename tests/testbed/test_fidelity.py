"""A link as planned is VALID; one with a planted fault is INVALID and says why."""

import dataclasses

import pytest
from link_model import DELAY_S, always, make_log, run_link, transfers

from testbed.cpu_account import CpuUse
from testbed.fidelity import busy_second_errors, judge, percentile, summarize
from testbed.link_account import LinkRow
from testbed.link_settings import LinkSettings
from testbed.sampler import empty_samples

SAW = [5, 40, 12, 25, 8, 30, 18, 6, 45, 20] * 3
# the model's queue has no end
LINK = LinkSettings(delay_ms=10, queue_bytes=1 << 30)
IDLE = CpuUse(foreign=0.0, own=0.3, idle=0.7, steal=0.0, pressure=0.01)
NONE = {"down": 0, "up": 0}
CLEAN = {
    "passed": {"down": 100, "up": 50},
    "lost": NONE,
    "drops": NONE,
    "late_ms": {"p50": 0.1, "p99": 0.3, "max": 1.0},
}


def verdict(samples, log, rtt_ms=20.3, report=CLEAN, link=LINK, cpu=IDLE):
    summary = summarize(samples, [log], link.counted_delay_s)
    return judge(summary, link, rtt_ms=[rtt_ms], delay_report=report, cpu=cpu)


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
        ({"report": {**CLEAN, "drops": {"down": 0, "up": 3}}}, "3 frames lost in the delay node"),
        ({"report": {**CLEAN, "late_ms": {"max": 60.0}}}, "60 ms late: the latest frame leaving the delay node"),
        ({"report": {**CLEAN, "lost": {"down": 9, "up": 0}}}, "9 of 109 frames were lost on the way down; 0.000% were"),
        ({"cpu": CpuUse(0.5, 0.4, 0.0, 0.0, 0.9)}, "the processors were starved: other programs took 50% of them"),
        ({"cpu": CpuUse(0.0, 0.4, 0.0, 0.3, 0.9)}, "the machine below took 30% of them"),
        ({"link": dataclasses.replace(LINK, uplink_delay_ms=30)}, "off the planned round trip of 40 ms"),
        ({"link": dataclasses.replace(LINK, queue_bytes=20_000)}, "bytes waited in the queue; the limit is"),
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
    report = {"passed": {"down": 9, "up": 9}, "lost": NONE, "drops": NONE}

    assert verdict(run_link(log, always), log, report=report).verdict == "VALID"


def test_losses_and_jitter_that_were_asked_for_are_no_fault_and_others_are():
    log = make_log(SAW)
    link = dataclasses.replace(LINK, jitter_ms=3, loss=0.05)
    samples = run_link(log, always, delay_s=0.0)
    right = {**CLEAN, "passed": {"down": 9500, "up": 950}, "lost": {"down": 500, "up": 50}}
    wrong = {**CLEAN, "passed": {"down": 10_000, "up": 950}, "lost": {"down": 0, "up": 50}}

    assert verdict(samples, log, link=link, report=right, rtt_ms=16.0).reasons == ()
    assert verdict(samples, log, link=link, report=right, rtt_ms=10.0).reasons == (
        "4 ms off the planned round trip of 20 ± 6 ms; the limit is 2",
    )
    assert verdict(samples, log, link=link, report=wrong).reasons == (
        "0 of 10000 frames were lost on the way down; 5.000% were asked for",
    )


def test_a_round_trip_that_is_wrong_only_after_the_run_counts_too():
    log = make_log(SAW)
    summary = summarize(run_link(log, always), [log], DELAY_S)
    found = judge(summary, LINK, rtt_ms=[20.2, 27.0], delay_report=CLEAN, cpu=IDLE)

    assert found.reasons == ("7 ms off the planned round trip of 20 ms; the limit is 2",)


def test_processors_that_nobody_watched_are_a_note():
    log = make_log(SAW)
    found = verdict(run_link(log, always), log, cpu=None)

    assert (found.verdict, found.notes) == ("VALID", ("the processors were not watched",))


def busy(busy_s, capacity, delivered):
    return LinkRow(0.0, 0.1, capacity, delivered, busy_s, capacity, delivered)


def test_busy_time_of_many_rows_makes_whole_seconds():
    rows = [busy(0.1, 100, 110)] * 10 + [busy(0.06, 50, 40)] * 10

    assert busy_second_errors(rows) == pytest.approx([0.1, 0.2])


def test_a_rest_below_half_a_second_is_not_judged():
    assert busy_second_errors([busy(0.1, 100, 150)] * 4) == []


def test_percentile_is_the_nearest_rank():
    assert [percentile([4, 1, 3, 2], share) for share in (0.0, 0.5, 0.95, 1.0)] == [1, 2, 4, 4]
