"""Predictions of tokens' symbols from earlier tokens': the same integers on every backend, and their own inverse."""

import numpy as np
import pytest
import torch
from checks import backends
from hypothesis import given, settings
from hypothesis import strategies as st

from cachegen.kernels.prediction import PREDICTED_LARGEST, WEIGHT_BITS, Predictions, add_predictions, predict

ONE = 1 << WEIGHT_BITS
# What a format with steps at most four places apart can ask for, and what the arithmetic has to bear.
LARGEST_WEIGHT = 1 << 17
DTYPES = {np.int16: torch.int16, np.int32: torch.int32}


def predictions_of(columns, weights, ranks):
    return Predictions(
        np.array(columns, dtype=np.int32).reshape(-1, 3),
        np.array(weights, dtype=np.int32).reshape(-1, 2),
        np.array(ranks, dtype=np.int32).reshape(-1),
    )


def each_result(residuals, predictions):
    """What the reference, and then each backend, make of the same symbols."""
    reference = residuals.copy()
    add_predictions(reference, predictions)
    yield reference
    for backend in backends():
        symbols = torch.from_numpy(residuals.copy())
        backend.add_predictions(symbols, predictions)
        yield symbols.numpy()


def made(residuals, predictions):
    """What all backends make of them, once it is known to be one and the same."""
    reference, *others = each_result(residuals, predictions)
    for other in others:
        assert other.dtype == residuals.dtype
        assert np.array_equal(reference, other)
    return reference


@st.composite
def cases(draw, largest=PREDICTED_LARGEST):
    """Symbols of tokens in an order of their own, and what predicts those behind the first few, by chains too."""
    coefficients, tokens = draw(st.integers(1, 9)), draw(st.integers(1, 14))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    size = draw(st.sampled_from([1, 5, 300, largest]))
    symbols = rng.integers(-size, size, (coefficients, tokens), endpoint=True)
    order = rng.permutation(tokens)
    predicted = [at for at in range(1, tokens) if rng.random() < draw(st.sampled_from([0.0, 0.5, 1.0]))]
    columns = [[order[at], *order[rng.integers(0, at, 2)]] for at in predicted]
    most = draw(st.sampled_from([ONE, LARGEST_WEIGHT]))
    weights = rng.integers(0, most, (len(predicted), 2), endpoint=True) * rng.integers(0, 2, (len(predicted), 2))
    ranks = rng.integers(0, coefficients, len(predicted), endpoint=True)
    return symbols, predictions_of(columns, weights, ranks)


@settings(max_examples=150, deadline=None)
@given(case=cases(), dtype=st.sampled_from(list(DTYPES)))
def test_every_backend_makes_the_same_symbols(case, dtype):
    symbols, predictions = case
    made(symbols.astype(dtype), predictions)


@settings(max_examples=60, deadline=None)
@given(case=cases(largest=2**31 - 1))
def test_symbols_of_32_bits_that_no_encoder_writes_do_not_overflow(case):
    symbols, predictions = case
    found = made(symbols.astype(np.int32), predictions)

    for column, rank in zip(predictions.columns[:, 0], predictions.ranks, strict=True):
        assert (np.abs(found[:rank, column].astype(np.int64)) <= PREDICTED_LARGEST).all()
        assert np.array_equal(found[rank:, column], symbols[rank:, column])


@settings(max_examples=150, deadline=None)
@given(case=cases())
def test_what_an_encoder_took_off_is_added_again(case):
    symbols, predictions = case
    residuals = symbols.astype(np.int32)
    residuals[:, predictions.columns[:, 0]] -= predict(symbols, predictions).astype(np.int32)

    assert np.array_equal(made(residuals, predictions), symbols)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("value", "weight", "expected"),
    [(1, ONE // 2, 1), (-1, ONE // 2, 0), (3, ONE // 2, 2), (-3, ONE // 2, -1), (-3, ONE // 4, -1), (-1, ONE, -1)],
)
def test_halves_are_rounded_up_whatever_the_sign(dtype, value, weight, expected):
    residuals = np.array([[value, 0]], dtype=dtype)

    assert made(residuals, predictions_of([[1, 0, 0]], [[weight, 0]], [1])).tolist() == [[value, expected]]
    # of the sum, not of each reference: two halves of one are one
    half = predictions_of([[1, 0, 0]], [[weight // 2, weight - weight // 2]], [1])
    assert made(residuals, half).tolist() == [[value, expected]]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sign", [-1, 1])
def test_symbols_of_predicted_tokens_are_kept_within_16_bits_and_others_are_not_touched(dtype, sign):
    largest = sign * PREDICTED_LARGEST
    residuals = np.full((3, 4), largest, dtype=dtype)
    predictions = predictions_of([[2, 0, 1], [3, 2, 2]], [[LARGEST_WEIGHT] * 2] * 2, [2, 1])
    assert (made(residuals, predictions) == largest).all()
    if dtype == np.int16:
        residuals[:, 0] = -(1 << 15)
    else:
        residuals[:, 0] = sign * (1 << 20)
    assert np.array_equal(made(residuals, predictions)[:, 0], residuals[:, 0])


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_first_symbol_beyond_the_largest_is_cut_to_it(dtype):
    residuals = np.array([[PREDICTED_LARGEST, 0, 1, -1], [-PREDICTED_LARGEST, 0, -1, 1]], dtype=dtype)
    predictions = predictions_of([[at, 0, 0] for at in (1, 2, 3)], [[ONE, 0]] * 3, [2] * 3)

    largest = PREDICTED_LARGEST
    assert made(residuals, predictions).tolist() == [
        [largest, largest, largest, largest - 1],
        [-largest, -largest, -largest, 1 - largest],
    ]


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_chain_of_references_grows_token_by_token_and_stops_at_the_largest(dtype):
    residuals = np.zeros((1, 12), dtype=dtype)
    residuals[0, 0] = 1
    columns = [[at, at - 1, at - 1] for at in range(1, 12)]
    found = made(residuals, predictions_of(columns, [[2 * ONE, 2 * ONE]] * 11, [1] * 11))

    assert found[0].tolist() == [min(4**at, PREDICTED_LARGEST) for at in range(12)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 1), (5, 3), (300, 2)])
def test_where_nothing_is_predicted_nothing_changes(dtype, shape):
    residuals = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    nothing = predictions_of([], [], [])

    assert np.array_equal(made(residuals, nothing), residuals)
    assert predict(residuals, nothing).shape == (shape[0], 0)


@pytest.mark.parametrize("dtype", DTYPES)
def test_coefficients_beyond_a_tokens_rank_stay_as_they_are(dtype):
    residuals = np.ones((5, 3), dtype=dtype)
    found = made(residuals, predictions_of([[1, 0, 0], [2, 1, 0]], [[ONE, 0], [ONE, ONE]], [3, 0]))

    assert found[:, 1].tolist() == [2, 2, 2, 1, 1]
    assert found[:, 2].tolist() == [1, 1, 1, 1, 1]


@pytest.mark.parametrize("backend", backends(), ids=["reference", "numba"])
@pytest.mark.parametrize("dtype", DTYPES.values(), ids=["int16", "int32"])
def test_symbols_that_are_part_of_a_larger_tensor_are_changed_in_their_place(backend, dtype):
    whole = torch.arange(6 * 9).reshape(6, 9).to(dtype)
    before, part = whole.clone(), whole[1:4, 2:7]
    predictions = predictions_of([[1, 0, 0], [4, 1, 3]], [[ONE, 0], [ONE, ONE // 2]], [3, 2])
    expected = part.clone().numpy()
    add_predictions(expected, predictions)
    backend.add_predictions(part, predictions)

    assert np.array_equal(part.numpy(), expected)
    whole[1:4, 2:7] = before[1:4, 2:7]
    assert torch.equal(whole, before)


def test_the_number_of_threads_changes_nothing():
    rng = np.random.default_rng(0)
    residuals = rng.integers(-50, 50, (701, 40)).astype(np.int16)
    columns = [[at, *rng.integers(0, at, 2)] for at in range(1, 40)]
    predictions = predictions_of(columns, rng.integers(0, ONE, (39, 2)), rng.integers(0, 702, 39))
    threads = torch.get_num_threads()
    try:
        found = []
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            found.append(made(residuals, predictions))
    finally:
        torch.set_num_threads(threads)
    assert np.array_equal(found[0], found[1])
    assert np.array_equal(found[0], found[2])
