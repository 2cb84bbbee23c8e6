"""What an objective makes of requests."""

import pytest

from testbed.metrics import RequestRow
from testbed.slo import attainment_sweep, goodput, split_by_oracle, violation_class


def row(ttft_ms, status=None, **fields):
    status = status or ("ok" if ttft_ms is not None else "failed")
    return RequestRow(
        request=0, method="m", context="c", trace_offset_s=0.0, slo_ms=1000.0, status=status, ttft_ms=ttft_ms, **fields
    )


@pytest.mark.parametrize(
    ("ttft_ms", "status", "found"),
    [(1000.0, "ok", None), (1000.1, "ok", "late"), (None, "failed", "failed"), (None, "timed_out", "timed_out")],
)
def test_a_violation_has_one_class(ttft_ms, status, found):
    assert violation_class(row(ttft_ms, status)) == found


def test_attainment_counts_issued_requests_at_multiples_of_the_objective():
    sweep = {entry["scale"]: entry for entry in attainment_sweep([row(500.0), row(1500.0), row(None), row(1000.0)])}
    assert [sweep[scale]["attainment"] for scale in (0.25, 0.5, 1.0, 1.5, 4.0)] == [0.0, 0.25, 0.5, 0.75, 0.75]
    low, high = sweep[4.0]["interval"]
    assert 0 < low < 0.75 < high < 1


def test_goodput_counts_what_met_the_objective_over_all_time_spent():
    one_by_one = [row(500.0, bytes=100, batch=0, ended_s=0.5), row(1500.0, bytes=900, batch=1, ended_s=1.5)]
    assert goodput(one_by_one) == {"requests_per_s": 0.5, "bytes_per_s": 50.0}
    together = [row(500.0, bytes=100, ended_s=0.5), row(None, arrival_s=0.2, ended_s=5.0)]
    assert goodput(together) == {"requests_per_s": 0.2, "bytes_per_s": 20.0}


def test_goodput_is_unknown_where_ends_were_not_recorded():
    assert goodput([row(500.0), row(None)]) == {"requests_per_s": None, "bytes_per_s": None}


def test_what_the_oracle_meets_was_avoidable_and_the_rest_was_not():
    late = [row(1500.0, oracle_ttft_ms=oracle_ms) for oracle_ms in (900.0, 1000.0, 1000.1)]
    assert split_by_oracle([*late, row(800.0)]) == {"avoidable": 2, "infeasible": 1}
    assert split_by_oracle([*late, row(1500.0)]) is None
