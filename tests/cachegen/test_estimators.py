"""Throughput estimators: what any estimate must hold, and what each is for."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cachegen.errors import InvalidInputError, UnknownNameError
from cachegen.estimators import ESTIMATORS, make_estimator

# (bytes, seconds) of which rates are reasonable and sums stay exact enough
PIECES = st.lists(st.tuples(st.integers(1, 10**7), st.floats(1e-3, 5.0)), min_size=1, max_size=30)


def estimate(name, pieces):
    """What an estimator says of objects that arrive in one piece each."""
    estimator = make_estimator(name)
    for size_bytes, seconds in pieces:
        estimator.add_piece(size_bytes, seconds)
        estimator.add_transfer(size_bytes, seconds)
    return estimator.bps


def steady(rate_bps, seconds):
    """Objects of a tenth of a second each."""
    return [(rate_bps / 80, 0.1)] * round(10 * seconds)


def test_estimators_are_found_by_name():
    assert sorted(ESTIMATORS) == ["harmonic-mean", "last-chunk", "two-speed"]
    with pytest.raises(UnknownNameError, match="'best'; there are last-chunk, harmonic-mean, two-speed"):
        make_estimator("best")


@pytest.mark.parametrize("name", ESTIMATORS)
def test_nothing_is_known_before_anything_has_arrived(name):
    assert make_estimator(name).bps is None


@pytest.mark.parametrize("name", ESTIMATORS)
@settings(deadline=None)
@given(rate_bps=st.floats(1e4, 1e9), seconds=st.lists(st.floats(1e-3, 5.0), min_size=1, max_size=30))
def test_a_constant_rate_is_found_whatever_the_sizes(name, rate_bps, seconds):
    pieces = [(rate_bps * spent_s / 8, spent_s) for spent_s in [*seconds, 0.5]]

    assert estimate(name, pieces) == pytest.approx(rate_bps)


@pytest.mark.parametrize("name", ESTIMATORS)
@settings(deadline=None)
@given(pieces=PIECES)
def test_an_estimate_lies_among_the_rates_that_were_seen(name, pieces):
    rates = [8 * size_bytes / seconds for size_bytes, seconds in pieces]
    found = estimate(name, pieces)

    if found is not None:
        assert min(rates) * (1 - 1e-9) <= found <= max(rates) * (1 + 1e-9)


@settings(deadline=None)
@given(st.floats(1e5, 1e9), st.lists(st.floats(0.01, 1.0), min_size=1, max_size=10))
def test_two_speed_does_not_depend_on_how_time_is_cut(rate_bps, spans_s):
    whole, cut = make_estimator("two-speed"), make_estimator("two-speed")
    for place, span_s in enumerate([0.2, *spans_s]):
        size_bytes = rate_bps / (1 + place % 3) * span_s / 8
        whole.add_piece(size_bytes, span_s)
        for _ in range(7):
            cut.add_piece(size_bytes / 7, span_s / 7)

    assert cut.bps == pytest.approx(whole.bps)


def test_two_speed_says_nothing_of_an_instant():
    estimator = make_estimator("two-speed")
    estimator.add_piece(10**6, 1e-3)

    assert estimator.bps is None


@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_link_that_falls_lowers_every_estimate_and_one_that_rises_raises_it(name):
    fast, slow = estimate(name, steady(1e8, 3)), estimate(name, steady(1e8, 3) + steady(1e6, 3))
    risen = estimate(name, steady(1e6, 3) + steady(1e8, 3))

    assert slow < fast
    assert risen > estimate(name, steady(1e6, 3))


def test_two_speed_falls_sooner_than_it_rises():
    fallen = estimate("two-speed", steady(1e8, 3) + steady(1e6, 0.5))
    risen = estimate("two-speed", steady(1e6, 3) + steady(1e8, 0.5))

    assert fallen < 0.5e8
    assert risen < 0.5e8


def test_two_speed_comes_back_from_a_dip_and_harmonic_mean_feels_it():
    dip = [*steady(1e7, 3), *steady(1e6, 0.2), *steady(1e7, 2)]

    assert estimate("two-speed", dip) == pytest.approx(1e7, rel=0.1)
    assert estimate("harmonic-mean", dip[:-18]) < 5e6


@settings(deadline=None)
@given(PIECES, st.floats(0.01, 30))
def test_a_stall_lowers_two_speed(pieces, stall_s):
    estimator = make_estimator("two-speed")
    for size_bytes, seconds in [*pieces, (10**6, 0.2)]:
        estimator.add_piece(size_bytes, seconds)
    before = estimator.bps
    estimator.add_piece(0, stall_s)

    assert estimator.bps < before


@pytest.mark.parametrize("name", ["last-chunk", "harmonic-mean"])
def test_those_of_whole_objects_do_not_look_at_pieces(name):
    estimator = make_estimator(name)
    estimator.add_piece(10**6, 1.0)

    assert estimator.bps is None


def test_last_chunk_is_the_last_one_and_harmonic_mean_that_of_five():
    objects = [(10**6, seconds) for seconds in (9.0, 1.0, 1.0, 2.0, 2.0, 4.0)]

    assert estimate("last-chunk", objects) == 2e6
    assert estimate("harmonic-mean", objects) == pytest.approx(5 * 8e6 / 10)


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize(("size_bytes", "seconds"), [(-1, 1.0), (1, 0.0), (1, -1.0), (1, math.nan), (1, math.inf)])
def test_what_cannot_have_been_seen_is_refused(name, size_bytes, seconds):
    estimator = make_estimator(name)
    take = estimator.add_piece if name == "two-speed" else estimator.add_transfer

    with pytest.raises(InvalidInputError, match="are no throughput"):
        take(size_bytes, seconds)
