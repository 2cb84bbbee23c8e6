"""Statistics of a trace are over time, not over rows."""

from pathlib import Path

import numpy as np
import pytest

from testbed.trace import load_trace, parse_trace
from testbed.traces.statistics import describe, mean_mbps_in
from testbed.traces.terminal_plot import draw_trace


def trace(*rows):
    return parse_trace(("time_s,rate_mbps\n" + "".join(f"{t},{r}\n" for t, r in rows)).encode(), Path("t.csv"))


def test_rows_count_by_their_length():
    found = describe(trace((0, 10), (3, 2), (4, 6), (5, 6)))

    assert (found.duration_s, found.rows) == (6, 4)
    assert found.mean_mbps == pytest.approx((3 * 10 + 2 + 2 * 6) / 6)
    assert found.percentiles_mbps == {5: 2, 50: 6, 95: 10}
    assert (found.min_mbps, found.max_mbps) == (2, 10)
    assert found.variation == pytest.approx(np.std([10, 10, 10, 2, 6, 6]) / np.mean([10, 10, 10, 2, 6, 6]))


def test_outages_are_summed_and_the_longest_is_the_longest_unbroken_one():
    found = describe(trace((0, 0), (1, 5), (2, 0), (2.5, 0), (4, 1), (5, 0)))

    assert found.outage_s == pytest.approx(1 + 2 + 1)
    assert found.longest_outage_s == pytest.approx(2)
    assert found.outage_share == pytest.approx(4 / 6)


def test_autocorrelation_is_that_of_an_even_grid_round_the_period():
    shipped = load_trace("lte")
    rates = np.array(shipped.rates_mbps) - np.mean(shipped.rates_mbps)

    expected = np.mean(rates * np.roll(rates, -10)) / np.mean(rates**2)
    assert describe(shipped).autocorrelation == pytest.approx(expected, abs=1e-6)


def test_autocorrelation_holds_between_rows_of_uneven_length():
    uneven, even = (
        trace((0, 1), (0.5, 9), (2, 1), (2.5, 1)),
        trace(*((i / 2, 9 if 1 <= i < 4 else 1) for i in range(6))),
    )

    assert describe(uneven).autocorrelation == pytest.approx(describe(even).autocorrelation)


def test_a_constant_link_has_no_autocorrelation():
    found = describe(trace((0, 4)))

    assert (found.autocorrelation, found.variation, found.mean_mbps) == (None, 0, 4)


def test_parts_of_the_period_carry_what_the_trace_carries():
    shipped = load_trace("3g")
    parts = mean_mbps_in(shipped, 7)

    assert len(parts) == 7
    assert np.mean(parts) == pytest.approx(describe(shipped).mean_mbps)


def test_only_outages_are_empty_columns_of_the_drawing():
    lines = list(draw_trace(trace((0, 100), (5, 0.001), (10, 0), (15, 100)), width=50))
    foot = lines[-2].split("▕")[1]

    assert len(foot) == 40
    assert (foot[:10], foot[10:20], foot[20:30], foot[30:]) == ("█" * 10, "▁" * 10, " " * 10, "█" * 10)
    assert all(len(line) <= 50 for line in lines)
