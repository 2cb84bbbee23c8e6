"""Intervals hold what they say, at the stated rate."""

import numpy as np
import pytest
from scipy import stats

from testbed.stats import mean_interval, percentile_interval, percentile_ratio, wilson_interval


def test_wilson_interval_agrees_with_its_formula():
    z, share, total = stats.norm.ppf(0.975), 0.3, 20
    centre = (share + z * z / (2 * total)) / (1 + z * z / total)
    half = z * np.sqrt(share * (1 - share) / total + z * z / (4 * total**2)) / (1 + z * z / total)
    assert wilson_interval(6, 20) == pytest.approx([centre - half, centre + half])


def test_no_violation_in_five_requests_is_no_proof_of_none():
    low, high = wilson_interval(0, 5)
    assert low == 0
    assert high > 0.4


@pytest.mark.parametrize("share", [0.5, 0.9, 0.95, 0.99])
@pytest.mark.parametrize("size", [5, 40, 300])
def test_a_percentile_lies_in_its_interval_at_least_as_often_as_stated(share, size):
    rng = np.random.default_rng(1)
    held = 0
    for _ in range(400):
        low, high = percentile_interval(rng.random(size).tolist(), share)
        held += (low or 0.0) <= share <= (high if high is not None else 1.0)
    # of 400 draws at 95 %, fewer than 366 come once in a thousand
    assert held >= 366


def test_five_values_bound_no_99th_percentile_from_above():
    assert percentile_interval([1.0, 2.0, 3.0, 4.0, 5.0], 0.99)[1] is None
    assert percentile_interval([], 0.5) == (None, None)


def test_a_mean_lies_in_its_interval_about_as_often_as_stated():
    rng = np.random.default_rng(2)
    draws = [mean_interval(rng.lognormal(sigma=0.5, size=40).tolist()) for _ in range(200)]
    held = sum(low <= np.exp(0.125) <= high for low, high in draws)
    assert 176 <= held <= 199


def test_the_same_values_have_the_same_interval():
    values = [3.0, 1.0, 4.0, 1.5, 9.0, 2.6]
    assert mean_interval(values) == mean_interval(values)
    assert mean_interval(values[:5]) == (None, None)
    assert mean_interval([2.0] * 6) == (2.0, 2.0)


def test_a_percentiles_ratio_is_resampled_in_pairs_of_clusters():
    rng = np.random.default_rng(3)
    base = [[value, 1.1 * value] for value in rng.lognormal(size=60).tolist()]
    new = [[1.2 * value for value in cluster] for cluster in base]
    ratio, (low, high) = percentile_ratio(base, new, 0.95)
    # every resample has the same ratio: drawn apart, they would differ widely
    assert [ratio, low, high] == pytest.approx([1.2, 1.2, 1.2])
    assert percentile_ratio(base[:10], new[:10], 0.95)[1] == (None, None)
