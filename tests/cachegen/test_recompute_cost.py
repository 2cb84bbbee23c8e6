"""Recompute costs are found again from exact times, never negative."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cachegen.errors import InvalidInputError
from cachegen.recompute_cost import RecomputeCost

SPANS = [(0, 64), (0, 512), (512, 512), (1536, 512), (2048, 100)]


@settings(deadline=None)
@given(call_s=st.floats(0, 1), token_s=st.floats(1e-6, 1e-2), attention_s=st.floats(0, 1e-5))
def test_fit_finds_the_coefficients_of_exact_times(call_s, token_s, attention_s):
    cost = RecomputeCost(call_s, token_s, attention_s)

    fitted = RecomputeCost.fit((prefix, tokens, cost.predict(prefix, tokens)) for prefix, tokens in SPANS)

    for prefix, tokens in [*SPANS, (8192, 1536)]:
        assert fitted.predict(prefix, tokens) == pytest.approx(cost.predict(prefix, tokens), rel=1e-6)


def test_prediction_follows_the_formula():
    assert RecomputeCost(0.5, 0.01, 0.0001).predict(100, 20) == pytest.approx(0.5 + 0.2 + 0.0001 * 20 * 110)


def test_splitting_a_prefill_changes_only_the_cost_of_calls():
    cost = RecomputeCost(0.5, 0.01, 0.0001)

    assert cost.predict(0, 300) + cost.call_s == pytest.approx(cost.predict(0, 100) + cost.predict(100, 200))


def test_times_that_fall_with_the_prefix_do_not_make_a_negative_coefficient():
    cost = RecomputeCost.fit([(0, 512, 1.0), (512, 512, 0.9), (1024, 512, 0.8), (0, 64, 0.2)])

    assert min(cost.call_s, cost.token_s, cost.attention_s) == 0.0
    assert cost.predict(1024, 512) > 0


@settings(deadline=None)
@given(st.lists(st.floats(1e-3, 10), min_size=len(SPANS), max_size=len(SPANS)))
def test_no_other_non_negative_coefficients_fit_better(times_s):
    cost = RecomputeCost.fit((prefix, tokens, time_s) for (prefix, tokens), time_s in zip(SPANS, times_s, strict=True))

    def error(candidate):
        predicted = [candidate.predict(prefix, tokens) for prefix, tokens in SPANS]
        return np.linalg.norm(np.subtract(predicted, times_s))

    # The error is convex, so a better point anywhere means a better one in some direction close by.
    steps = [(-s, 0.0, s) for s in (1e-3, 1e-6, 1e-9)]
    for deltas in itertools.product(*steps):
        moved = np.maximum(0.0, np.add((cost.call_s, cost.token_s, cost.attention_s), deltas))
        assert error(cost) <= error(RecomputeCost(*moved)) + 1e-9


def test_too_few_measurements_are_refused():
    with pytest.raises(InvalidInputError, match="2 measurements of recomputation, 3 are needed"):
        RecomputeCost.fit([(0, 512, 1.0), (512, 512, 1.1)])


@pytest.mark.parametrize(
    "spans",
    [[(0, 512)] * 4, [(0, 512), (512, 512), (1024, 512), (1536, 512)]],
    ids=["one span", "one length"],
)
def test_measurements_that_cannot_tell_the_terms_apart_are_refused(spans):
    with pytest.raises(InvalidInputError, match="4 measurements cannot tell"):
        RecomputeCost.fit((prefix, tokens, 1.0 + prefix / 1000) for prefix, tokens in spans)


@pytest.mark.parametrize(
    "bad",
    [
        (0, 512, 0.0),
        (0, 512, -1.0),
        (0, 512, float("nan")),
        (0, 512, float("inf")),
        (-1, 1, 1.0),
        (0, 0, 1.0),
    ],
)
def test_measurements_that_cannot_be_are_refused_by_place(bad):
    with pytest.raises(InvalidInputError, match="measurement 2"):
        RecomputeCost.fit([(0, 64, 0.1), (0, 512, 1.0), bad])


@pytest.mark.parametrize(("prefix", "tokens"), [(-1, 5), (0, 0), (7, -2)])
def test_prediction_refuses_spans_that_cannot_be(prefix, tokens):
    with pytest.raises(InvalidInputError, match="cannot be prefilled"):
        RecomputeCost(0.1, 0.1, 0.1).predict(prefix, tokens)
