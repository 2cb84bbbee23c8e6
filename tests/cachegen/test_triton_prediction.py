"""Predictions added by the GPU kernel: the reference's bits."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_predictions import LARGEST_WEIGHT, ONE, cases, predictions_of
from triton_device import DEVICE, MARK, gpu_backend, put

from cachegen.kernels.prediction import PREDICTED_LARGEST, add_predictions

pytestmark = MARK
DTYPES = [np.int16, np.int32]


def check_same(residuals, predictions):
    expected = residuals.copy()
    add_predictions(expected, predictions)
    symbols = put(residuals)
    gpu_backend().add_predictions(symbols, predictions)

    assert symbols.cpu().numpy().dtype == residuals.dtype
    assert np.array_equal(symbols.cpu().numpy(), expected)
    return expected


@settings(max_examples=25, deadline=None)
@given(case=cases(), dtype=st.sampled_from(DTYPES))
def test_symbols_of_any_shape_and_size_come_to_the_same_bits(case, dtype):
    symbols, predictions = case
    check_same(symbols.astype(dtype), predictions)


@settings(max_examples=10, deadline=None)
@given(case=cases(largest=2**31 - 1))
def test_symbols_of_32_bits_that_no_encoder_writes_do_not_overflow(case):
    symbols, predictions = case
    check_same(symbols.astype(np.int32), predictions)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("coefficients", [1, 127, 128, 129, 300])
def test_blocks_of_coefficients_do_not_meet(coefficients, dtype):
    rng = np.random.default_rng(coefficients)
    residuals = rng.integers(-90, 90, (coefficients, 6)).astype(dtype)
    ranks = [coefficients, coefficients - 1, min(coefficients, 128), 0, coefficients]
    columns = [[at, at - 1, rng.integers(0, at)] for at in range(1, 6)]
    check_same(residuals, predictions_of(columns, rng.integers(0, LARGEST_WEIGHT, (5, 2)), ranks))


@pytest.mark.parametrize("dtype", DTYPES)
def test_where_nothing_is_predicted_nothing_changes(dtype):
    check_same(np.arange(15).reshape(5, 3).astype(dtype), predictions_of([], [], []))


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_chain_of_references_reads_what_it_has_just_written(dtype):
    residuals = np.zeros((130, 12), dtype=dtype)
    residuals[:, 0] = np.where(np.arange(130) % 2, -1, 1)
    columns = [[at, at - 1, at - 1] for at in range(1, 12)]
    found = check_same(residuals, predictions_of(columns, [[2 * ONE, 2 * ONE]] * 11, [130] * 11))

    assert found[0].tolist() == [min(4**at, PREDICTED_LARGEST) for at in range(12)]


@pytest.mark.parametrize("dtype", [torch.int16, torch.int32])
def test_symbols_that_are_part_of_a_larger_tensor_are_changed_in_their_place(dtype):
    whole = torch.arange(6 * 9).reshape(6, 9).to(dtype).to(DEVICE)
    before = whole.cpu().clone()
    predictions = predictions_of([[1, 0, 0], [4, 1, 3]], [[ONE, 0], [ONE, ONE // 2]], [3, 2])
    add_predictions(before[1:4, 2:7].numpy(), predictions)
    gpu_backend().add_predictions(whole[1:4, 2:7], predictions)

    assert torch.equal(whole.cpu(), before)


def test_rows_beyond_two_to_the_31_elements_are_found_in_their_place():
    # interpreted, pages between the rows are never touched and take no memory
    memory = torch.empty(2**31 + 100, dtype=torch.int16, device=DEVICE)
    far = memory.as_strided((2, 5), (2**31, 1))
    far.copy_(torch.arange(10).reshape(2, 5))
    predictions = predictions_of([[1, 0, 0], [4, 1, 3]], [[ONE, 0], [ONE, ONE // 2]], [2, 2])
    expected = np.arange(10, dtype=np.int16).reshape(2, 5)
    add_predictions(expected, predictions)
    gpu_backend().add_predictions(far, predictions)

    assert np.array_equal(far.cpu().numpy(), expected)
