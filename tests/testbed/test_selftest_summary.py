"""The selftest's figures become the limits within which results can be trusted."""

import pytest

from testbed.link_account import LinkRow
from testbed.selftest.cases import FLOWS, lte, outages, rate_cases, steps
from testbed.selftest.summary import tenth_errors, trusted_rates, words_on_time
from testbed.trace import load_trace


def rated(flow, low, high, within, shape="constant"):
    return {"flow": flow, "mbps": [low, high], "shape": shape, "busy_tenths": 30, "within": within}


def test_trusted_is_the_longest_row_of_neighbouring_exact_rates():
    figures = [rated("cubic", rate, rate, rate in (5, 20, 100, 1000)) for rate in (1000, 1, 5, 20, 100, 500)]
    figures += [rated("cubic", 5, 50, True, "step"), rated("cubic", 5, 50, False, "lte"), {"errors_ms": {}}]
    [trusted] = trusted_rates(figures)

    assert trusted["mbps"] == [5, 100]
    assert trusted["words"] == "5 to 100 Mbit/s; 1 of 2 changing links were exact"


def test_a_flow_that_was_never_exact_is_said_to_be_so():
    found = trusted_rates([rated("udp", 5, 5, False), rated("bbr", 5, 5, True)])

    assert [one["mbps"] for one in found] == [None, [5, 5]]
    assert found[0]["words"] == "no rate was exact"


def test_lateness_is_the_worst_of_all_links():
    late = [{"busy_tenths": 9, "step_late_p99_ms": 1.0, "relay_late_p99_ms": None}, {"errors_ms": {}}]
    late.append({"busy_tenths": 0, "step_late_p99_ms": 0.4, "relay_late_p99_ms": 2.5})
    assert "at most 1.0 ms late, delayed frames 2.5 ms" in words_on_time(late)


def test_cases_cover_every_flow_from_one_to_a_thousand_mbps_over_three_shapes():
    cases = rate_cases(quick=False)

    assert {case.flow for case in cases} == set(FLOWS)
    assert {case.shape for case in cases} == {"constant", "step", "lte"}
    assert (min(case.low_mbps for case in cases), max(case.high_mbps for case in cases)) == (1.0, 1000.0)
    assert sum(case.duration_s for case in cases) < 150
    assert sum(case.duration_s for case in rate_cases(quick=True)) < 15


def test_made_traces_hold_the_rates_they_name():
    assert [steps(5, 50).rate_at_mbps(time_s) for time_s in (0.2, 0.7, 1.2)] == [50, 5, 50]
    assert [outages(20).rate_at_mbps(time_s) for time_s in (0.7, 1.2, 1.7, 2.2)] == [20, 0, 0, 20]
    assert lte(10).rate_at_mbps(30) == 10 * load_trace("lte").rate_at_mbps(30)


def row(index, delivered, busy_s=0.0):
    return LinkRow(index * 0.1, 0.1, 100.0, delivered, busy_s, 100.0 * busy_s / 0.1, delivered * busy_s / 0.1)


def test_tenths_with_a_queue_throughout_are_compared_and_no_others():
    rows = [row(i, 90.0) for i in range(10)] + [row(i, 101.0, busy_s=0.1) for i in range(10, 16)]

    assert tenth_errors(rows) == pytest.approx([0.01] * 6)


def test_a_fast_link_without_a_visible_queue_counts_if_all_of_it_is_what_the_trace_allowed():
    beginning = [row(i, 20.0) for i in range(10)]
    full = [row(i, 100.4) for i in range(10, 30)]

    assert tenth_errors([*beginning, *full]) == pytest.approx([0.004] * 19)
    assert tenth_errors([*beginning, *(row(i, 97.0) for i in range(10, 30))]) == []
    assert tenth_errors([]) == []
