"""What counts as busy, and what each row of the account holds."""

import pytest
from link_model import DELAY_S, ORIGIN_S, always, make_log, run_link, transfers

from testbed.link_account import PlannedLink, busy_spans, excess_s, link_rows
from testbed.replay import ReplayLog, ReplayStep
from testbed.sampler import LinkReading, append_reading, empty_samples
from testbed.trace import BYTES_PER_MBIT

SAW = [5, 40, 12, 25, 8, 30, 18, 6, 45, 20] * 3


def backlogs(values):
    samples = empty_samples()
    for i, value in enumerate(values):
        append_reading(samples, LinkReading(i / 128, 0, 0, value, 0))
    return samples


@pytest.mark.parametrize(
    ("values", "spans"),
    [
        ([0, 1, 1, 1, 1, 1, 0], [(2, 4)]),
        ([1, 1, 1, 1], [(1, 2)]),
        ([0, 1, 1, 1, 0], []),
        ([0, 1, 0, 1, 0, 1], []),
        ([1, 1, 1, 1, 0, 1, 1, 1, 1, 1], [(1, 2), (6, 8)]),
        ([], []),
    ],
)
def test_busy_leaves_out_the_ends_of_each_run_of_standing_queues(values, spans):
    assert busy_spans(backlogs(values), 0, 99) == [(start / 128, end / 128) for start, end in spans]


def test_certain_is_a_queue_that_cannot_have_run_empty_between_two_samples():
    # 0.064 Mbit/s are 62.5 bytes from one sample to the next
    slow = PlannedLink(ReplayLog("slow", 0.0, 0.0, 2.0, (ReplayStep(0.0, 0.0, 0.064, None),)), 0.0)
    samples = backlogs([90, 90, 63, 90, 62, 90, 90, 90, 90])

    assert busy_spans(samples, 0, 99, slow) == [(1 / 128, 2 / 128), (6 / 128, 7 / 128)]


def test_busy_counts_only_within_the_replay():
    assert busy_spans(backlogs([1] * 10), 3 / 128, 7 / 128) == [(4 / 128, 6 / 128)]


def test_samples_far_apart_prove_no_queue_between_them():
    samples = backlogs([1] * 6)
    for i in range(6):
        append_reading(samples, LinkReading(1.0 + i / 128, 0, 0, 1, 0))

    assert busy_spans(samples, 0, 99) == [(1 / 128, 4 / 128), (1 + 1 / 128, 1 + 4 / 128)]


def test_rows_of_a_loaded_link_hold_the_capacity_of_the_trace():
    log = make_log(SAW)
    rows = link_rows(run_link(log, always), log, DELAY_S)

    assert len(rows) == len(SAW)
    for row, rate_mbps in zip(rows, SAW, strict=True):
        assert row.capacity_bytes == pytest.approx(rate_mbps * BYTES_PER_MBIT * 0.1)
        assert row.delivered_bytes == pytest.approx(row.capacity_bytes, abs=3 * 1514)
    assert sum(row.busy_s for row in rows) == pytest.approx(3.0, abs=0.05)


def test_idle_link_is_not_busy_whatever_it_misses():
    log = make_log([20] * 10)
    rows = link_rows(run_link(log, transfers(1514, 0.05)), log, DELAY_S)

    assert sum(row.busy_s for row in rows) == 0
    assert sum(row.delivered_bytes for row in rows) < 0.1 * sum(row.capacity_bytes for row in rows)


def test_last_row_ends_with_the_replay():
    log = make_log([20] * 5, step_s=0.05)
    rows = link_rows(run_link(log, always), log, DELAY_S)

    assert [row.duration_s for row in rows] == pytest.approx([0.1, 0.1, 0.05])


def test_replay_that_was_not_sampled_has_no_rows():
    assert link_rows(empty_samples(), make_log([20] * 5), DELAY_S) == []


def test_frames_keep_their_order_when_the_delay_shrinks():
    planned = PlannedLink(make_log([20] * 3, delays_ms=[30, 30, 10]), DELAY_S)

    assert planned.arrival_s(ORIGIN_S + 0.199) == pytest.approx(ORIGIN_S + 0.229)
    assert planned.arrival_s(ORIGIN_S + 0.21) == pytest.approx(ORIGIN_S + 0.23)
    assert planned.arrival_s(ORIGIN_S + 0.25) == pytest.approx(ORIGIN_S + 0.26)


def test_exact_link_has_no_surplus_beyond_its_burst():
    log = make_log(SAW)

    assert excess_s(run_link(log, always), log, DELAY_S) < 0.002


def test_surplus_shows_though_the_queue_never_stood():
    log = make_log([20] * 20)
    samples = run_link(log, transfers(200_000, 0.4), speed=50)

    assert sum(row.busy_s for row in link_rows(samples, log, DELAY_S)) == 0
    assert excess_s(samples, log, DELAY_S) > 0.05


def test_an_outage_and_the_moment_after_it_are_not_compared_and_the_rest_is():
    log = make_log([20, 0, 20, 20, 20])
    rows = link_rows(run_link(log, always), log, DELAY_S)

    assert [round(row.busy_s, 2) for row in rows[1:]] == [0.0, 0.09, 0.1, 0.1]
    assert rows[1].capacity_bytes == rows[1].busy_delivered_bytes == 0


def test_a_frame_that_a_step_finds_on_the_line_is_not_held_against_it():
    log = make_log([20, 0.1, 5, 20])

    # a frame of 1,514 bytes takes 0.6 ms at 20 Mbit/s, 121 at 0.1 (longer than the step after it), 2.4 at 5
    assert PlannedLink(log, DELAY_S).unfit_s() == [
        pytest.approx((ORIGIN_S + 0.1, ORIGIN_S + 0.1 + 0.0006056)),
        pytest.approx((ORIGIN_S + 0.2, ORIGIN_S + 0.2 + 0.12112)),
    ]


def test_a_trace_that_ends_in_an_outage_is_compared_up_to_it():
    log = make_log([20, 20, 0])

    assert [round(row.busy_s, 1) for row in link_rows(run_link(log, always), log, DELAY_S)] == [0.1, 0.1, 0.0]


def test_bytes_counted_at_the_shaper_have_travelled_nowhere():
    log = make_log([5, 40] * 5, delays_ms=[80] * 10)
    rows = link_rows(run_link(log, always, delay_s=0.0), log, None)

    assert len(rows) == 10
    for row, rate_mbps in zip(rows, [5, 40] * 5, strict=True):
        assert row.delivered_bytes == pytest.approx(rate_mbps * BYTES_PER_MBIT * 0.1, abs=3 * 1514)


def test_a_slow_busy_link_is_right_to_a_fraction_of_a_frame_in_each_tenth():
    log = make_log([5] * 20)
    rows = link_rows(run_link(log, always, period_s=0.002), log, DELAY_S)[1:-1]

    assert all(row.busy_delivered_bytes == pytest.approx(row.busy_capacity_bytes, abs=1514) for row in rows)
