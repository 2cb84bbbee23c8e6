"""Interpolation between measured levels."""

import pytest

from cachegen.benchmark.curves import Curve, Point, compare_curves, mean_ratio

# a tenth of the KL for every further bit
LINE = Curve([Point(3.0, 0.001), Point(1.0, 0.1), Point(2.0, 0.01)])


def test_measured_points_are_met_exactly():
    assert [LINE.bits_at(kl) for kl in (0.1, 0.01, 0.001)] == pytest.approx([1.0, 2.0, 3.0])


def test_bits_are_straight_over_the_logarithm_of_kl():
    assert LINE.bits_at(0.1**1.5) == pytest.approx(1.5)
    assert LINE.bits_at(0.1**2.25) == pytest.approx(2.25)


@pytest.mark.parametrize("kl", [0.11, 0.0009])
def test_nothing_is_said_beyond_what_was_measured(kl):
    assert LINE.bits_at(kl) is None


def test_a_level_that_another_one_beats_is_no_part_of_the_curve():
    curve = Curve([Point(1.0, 0.1), Point(1.5, 0.2), Point(2.0, 0.01), Point(2.0, 0.02), Point(16.0, 0.0)])
    assert curve.points == [Point(1.0, 0.1), Point(2.0, 0.01)]


def test_the_smallest_below_a_bound_is_interpolated_or_the_coarsest_measured():
    assert LINE.least_bits(0.1**1.5) == pytest.approx(1.5)
    assert LINE.least_bits(0.5) == 1.0
    assert LINE.least_bits(0.0001) is None
    assert Curve([]).least_bits(0.1) is None


def test_two_curves_are_compared_where_both_were_measured():
    other = Curve([Point(2.0, 1.0), Point(4.0, 0.01), Point(6.0, 0.0001)])
    found = compare_curves(LINE, other, count=3)
    assert [row.kl for row in found] == pytest.approx([0.001, 0.01, 0.1])
    assert [row.bits for row in found] == pytest.approx([3.0, 2.0, 1.0])
    assert [row.other_bits for row in found] == pytest.approx([5.0, 4.0, 3.0])
    assert mean_ratio(found) == pytest.approx((5 / 3 * 2 * 3) ** (1 / 3))


def test_curves_that_share_no_kl_are_not_compared():
    assert compare_curves(LINE, Curve([Point(1.0, 2.0), Point(2.0, 1.0)]), count=3) == []
    assert compare_curves(LINE, Curve([Point(1.0, 0.05)]), count=3) == []
    assert compare_curves(LINE, Curve([]), count=3) == []
