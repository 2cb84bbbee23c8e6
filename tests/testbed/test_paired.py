"""Paired tests and intervals: against published figures, other implementations, and what chance allows."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from testbed.paired import Discordance, SubsetMeans, holm, sign_flip_p

Z = stats.norm.ppf(0.975)


def discordance(new_only, base_only, concordant):
    return Discordance([[1]] * new_only + [[-1]] * base_only + [[0]] * concordant)


@pytest.mark.parametrize(("new_only", "base_only"), [(0, 0), (1, 0), (6, 1), (9, 9), (30, 12)])
def test_of_single_pairs_the_sign_flips_are_mcnemars_exact_test(new_only, base_only):
    p_value = sign_flip_p([1] * new_only + [-1] * base_only + [0] * 20)
    expected = stats.binomtest(new_only, new_only + base_only).pvalue if new_only else 1.0
    assert p_value == pytest.approx(expected)


def test_sign_flips_of_clusters_are_all_their_signs_counted():
    sums = [3, -1, 2, 2, 0, 1]
    flipped = [
        sum(s * v for s, v in zip(signs, sums, strict=True)) for signs in itertools.product((-1, 1), repeat=len(sums))
    ]
    expected = np.mean([abs(value) >= abs(sum(sums)) for value in flipped])
    assert sign_flip_p(sums) == pytest.approx(expected)


def test_repeating_each_pair_makes_nothing_more_significant():
    assert sign_flip_p([3] * 6 + [-3]) == pytest.approx(sign_flip_p([1] * 6 + [-1]))


def test_the_score_interval_solves_its_equation():
    """At a bound, the restricted estimate must be the likelihood's maximum and its score just significant."""
    new_only, base_only, pairs = 12, 2, 50
    for bound in discordance(new_only, base_only, pairs - 14).interval(0.95):
        lost = np.linspace(max(0.0, -bound), min(1.0, (1 - bound) / 2), 200_001)[1:-1]
        likelihood = (
            new_only * np.log(lost + bound) + base_only * np.log(lost) + (pairs - 14) * np.log(1 - 2 * lost - bound)
        )
        best = lost[likelihood.argmax()]
        score = (new_only - base_only - pairs * bound) / math.sqrt(pairs * (2 * best + bound - bound * bound))
        assert abs(score) == pytest.approx(Z, abs=1e-3)


def test_the_score_interval_has_width_where_nothing_was_discordant():
    low, high = discordance(0, 0, 100).interval(0.95)
    assert high == -low == pytest.approx(Z**2 / (100 + Z**2), abs=1e-5)


def test_the_score_interval_turns_with_its_sides():
    one, other = discordance(7, 3, 40).interval(0.95), discordance(3, 7, 40).interval(0.95)
    assert one == pytest.approx((-other[1], -other[0]))
    assert discordance(5, 0, 0).interval(0.95)[1] == 1.0


@pytest.mark.parametrize(("gained", "lost", "pairs"), [(0.05, 0.05, 20), (0.1, 0.05, 50), (0.02, 0.0, 150)])
def test_a_change_lies_in_its_score_interval_about_as_often_as_stated(gained, lost, pairs):
    rng = np.random.default_rng(1)
    draws = rng.multinomial(pairs, [gained, lost, 1 - gained - lost], size=300)
    intervals = [discordance(*map(int, draw)).interval(0.95) for draw in draws]
    # of 300 at 95 %, fewer than 272 come once in a thousand
    assert sum(low <= gained - lost <= high for low, high in intervals) >= 272


def test_pairs_that_say_the_same_count_once_and_pairs_that_differ_count_more():
    alike = Discordance([[1, 1, 1]] * 4 + [[-1, -1, -1]] * 4 + [[0, 0, 0]] * 12)
    mixed = Discordance([[1, 0, 0]] * 4 + [[0, -1, 0]] * 4 + [[0, 0, 0]] * 12)
    assert alike.effective_pairs() == 20
    assert 40 < mixed.effective_pairs() <= 60
    assert Discordance([[0, 0, 0]] * 20).effective_pairs() == 20
    assert discordance(3, 2, 15).effective_pairs() == 20


def test_a_centre_lies_in_its_interval_as_often_as_stated_even_among_six():
    rng = np.random.default_rng(2)
    intervals = [SubsetMeans(rng.standard_t(2, size=6)).interval(0.95) for _ in range(400)]
    held = sum(low <= 0 <= high for low, high in intervals)
    # exactly 62 in 64 for six values
    assert 372 <= held <= 398


def test_drawn_subsets_agree_with_a_students_interval_where_that_one_holds():
    values = np.random.default_rng(3).normal(0.1, 1.0, size=200)
    low, high = SubsetMeans(values).interval(0.95)
    expected = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert (low, high) == pytest.approx((expected.low, expected.high), abs=0.01)


@pytest.mark.parametrize("size", [6, 12, 40])
def test_interval_and_test_never_disagree(size):
    rng = np.random.default_rng(size)
    for shift in np.linspace(0, 1.2, 13):
        means = SubsetMeans(rng.normal(shift, 1.0, size=size))
        low, high = means.interval(0.95)
        assert (means.p_value() <= 0.05) == (not low <= 0 <= high)


def test_five_values_bound_nothing_at_95_percent():
    means = SubsetMeans([1.0, 1.1, 0.9, 1.0, 1.2])
    assert means.interval(0.95) == (-math.inf, math.inf)
    assert means.p_value() == 2 / 32


def test_no_difference_anywhere_is_certain_from_six_on():
    assert SubsetMeans([0.0] * 6).interval(0.95) == (0.0, 0.0)
    assert SubsetMeans([0.0] * 6).p_value() == 1.0


def test_the_same_values_have_the_same_interval():
    values = np.random.default_rng(4).normal(size=50)
    assert SubsetMeans(values).interval(0.9) == SubsetMeans(values.copy()).interval(0.9)


def test_holm_agrees_with_a_worked_example():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []
