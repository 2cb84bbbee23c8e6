"""Figures of a method, from rows."""

import math

import pytest

from testbed.metrics import STAGES, RequestRow, jain_index, summarize_method, summarize_reference
from testbed.result_table import result_table


def row(ttft_ms, **fields):
    defaults = {
        "request": 0,
        "method": "m",
        "context": "c",
        "trace_offset_s": 0.0,
        "slo_ms": 1000.0,
        "status": "ok" if ttft_ms is not None else "failed",
        "ttft_ms": ttft_ms,
        "stages_ms": dict.fromkeys(STAGES, (ttft_ms or 0) / len(STAGES)),
        "bytes": 100,
        "kl": 0.1,
        "agreement": 1.0,
        "dppl": 0.0,
        "levels": {"quant8": 4},
        "link_mbps": 10.0,
    }
    return RequestRow(**(defaults | fields))


@pytest.mark.parametrize(("ttft_ms", "violation"), [(999.9, False), (1000.0, False), (1000.1, True), (None, True)])
def test_exactly_in_time_meets_the_slo_and_no_token_misses_it(ttft_ms, violation):
    assert row(ttft_ms).violation is violation


def test_a_failed_request_counts_in_the_rate_and_not_in_the_means():
    figures = summarize_method([row(500.0), row(1500.0), row(None, levels={}, bytes=7)])

    assert figures["requests"] == 3
    assert figures["completed"] == 2
    assert figures["violations"] == 2
    assert figures["slo_violation_rate"] == pytest.approx(2 / 3)
    assert figures["ttft_ms"] == {"mean": 1000.0, "p50": 500.0, "p90": 1500.0, "p95": 1500.0, "p99": 1500.0}
    assert figures["bytes_mean"] == 100
    assert figures["levels"] == {"quant8": 8}


def test_mean_stages_sum_to_the_mean_ttft():
    figures = summarize_method([row(500.0), row(1500.0), row(250.0)])
    assert sum(figures["stages_ms"].values()) == pytest.approx(figures["ttft_ms"]["mean"])


def test_a_method_of_which_nothing_completed_has_no_means():
    figures = summarize_method([row(None), row(None)])
    assert figures["slo_violation_rate"] == 1.0
    assert figures["ttft_ms"] == dict.fromkeys(["mean", "p50", "p90", "p95", "p99"])
    assert set(map(tuple, figures["ttft_ms_interval"].values())) == {(None, None)}
    assert figures["kl_mean"] is None


def test_percentiles_are_values_that_occurred():
    figures = summarize_method([row(float(ttft_ms)) for ttft_ms in range(1, 21)])
    assert (figures["ttft_ms"]["p50"], figures["ttft_ms"]["p95"]) == (10.0, 19.0)


def test_intervals_hold_their_figure_and_say_where_so_few_requests_give_no_bound():
    figures = summarize_method([row(float(ttft_ms)) for ttft_ms in range(1, 21)])
    for name, (low, high) in figures["ttft_ms_interval"].items():
        assert (low or 0.0) <= figures["ttft_ms"][name] <= (high or math.inf)
    assert figures["ttft_ms_interval"]["p50"] == [6.0, 15.0]
    assert figures["ttft_ms_interval"]["p99"] == [19.0, None]


def test_classes_of_violations_sum_to_the_violations():
    rows = [row(500.0), row(1500.0), row(None), row(None, status="timed_out"), row(None, status="aborted")]
    figures = summarize_method(rows)
    assert figures["violation_classes"] == {"late": 1, "failed": 1, "timed_out": 1, "aborted": 1}
    assert sum(figures["violation_classes"].values()) == figures["violations"]


def test_the_oracles_split_is_left_out_where_the_oracle_was_not_run():
    assert "violations_by_oracle" not in summarize_method([row(1500.0)])
    figures = summarize_method([row(1500.0, oracle_ttft_ms=900.0), row(None, oracle_ttft_ms=1100.0), row(500.0)])
    assert figures["violations_by_oracle"] == {"avoidable": 1, "infeasible": 1}


def test_scores_are_means_and_each_request_counts_once_in_the_reference():
    scored = {"score_name": "f1", "answer": "x"}
    rows = [
        row(500.0, request=0, score=0.5, reference_score=1.0, **scored),
        row(500.0, request=0, method="n", score=1.0, reference_score=1.0, **scored),
        row(500.0, request=1, score=0.0, reference_score=0.0, **scored),
        row(None, request=2, reference_score=0.5),
    ]
    figures = summarize_method([rows[0], rows[2], rows[3]])

    assert (figures["score_mean"], figures["scores"]) == (0.25, ["f1"])
    assert summarize_reference(rows) == {"score_mean": 0.5}
    assert summarize_reference([row(500.0)]) == {}
    assert summarize_method([row(500.0)])["score_mean"] is None


def test_the_table_has_the_uncompressed_cache_as_a_row_where_answers_are_scored():
    figures = {"m": summarize_method([row(500.0, score=0.25, score_name="f1")])}

    headings, rows = result_table({"methods": figures, "reference": {"score_mean": 0.75}})
    assert (headings[-1], [line[-1] for line in rows]) == ("score", ["0.25", "0.75"])
    assert rows[1][0] == "uncompressed KV"
    assert all(len(line) == len(headings) for line in rows)
    # without scores, and in runs of before there were any
    for extra in ({"reference": {}}, {}):
        headings, rows = result_table({"methods": figures, **extra})
        assert ("score" in headings, len(rows)) == (False, 1)


@pytest.mark.parametrize(
    ("shares", "index"), [([2.0, 2.0, 2.0], 1.0), ([1.0, 0.0, 0.0, 0.0], 0.25), ([1.0, 0.5], 0.9), ([0.0, 0.0], None)]
)
def test_jains_index_is_one_for_equals_and_one_over_n_for_a_winner(shares, index):
    assert jain_index(shares) == pytest.approx(index)


def test_fairness_counts_what_each_got_of_its_objective_and_nothing_for_no_token():
    assert summarize_method([row(100.0), row(900.0)])["fairness"] == 1.0
    assert summarize_method([row(1000.0), row(2000.0)])["fairness"] == pytest.approx(0.9)
    assert summarize_method([row(100.0), row(None, status="aborted")])["fairness"] == 0.5
    assert summarize_method([row(None), row(None)])["fairness"] is None


def test_requests_that_never_met_have_no_fairness():
    assert summarize_method([row(100.0), row(2000.0, batch=1)])["fairness"] is None


def test_waste_is_over_all_issued_requests_of_which_it_is_known():
    failed = row(None, levels={}, bytes=90, wasted_bytes=90)
    assert summarize_method([row(500.0, wasted_bytes=0), failed])["wasted_bytes_mean"] == 45
    assert summarize_method([row(500.0)])["wasted_bytes_mean"] is None


def test_goodput_is_over_the_time_of_serving_batch_by_batch():
    rows = [
        row(500.0, arrival_s=0.0, ended_s=0.5),
        row(1000.0, arrival_s=1.0, ended_s=2.0),
        row(3000.0, arrival_s=1.0, ended_s=4.0),
        row(500.0, batch=1, arrival_s=3.0, ended_s=4.0),
    ]
    assert summarize_method(rows)["goodput"]["requests_per_s"] == pytest.approx(3 / (4.0 + 1.0))
