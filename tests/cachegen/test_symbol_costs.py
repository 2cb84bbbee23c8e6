"""What symbols cost: bits by the tables' frequencies, summed over a sample of coefficients."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cachegen.kernels.prediction import WEIGHT_BITS, Predictions, predict
from cachegen.kernels.symbol_costs import SAMPLED, cost_tables, token_costs
from cachegen.kernels.tables import PROB_SUM, VALUE_OFFSET, FrequencyTables

ONE = 1 << WEIGHT_BITS
# Of an escaped value beside its index.
ESCAPED_BITS = 16.0


def tables_of(runs):
    """Tables of one row: for each coefficient the first value, and frequencies from it on."""
    first = np.array([[value + VALUE_OFFSET for value, _ in runs]], dtype=np.uint8)
    count = np.array([[len(run) for _, run in runs]], dtype=np.uint8)
    return FrequencyTables(first, count, np.concatenate([run for _, run in runs]).astype(np.uint16))


# Of five coefficients, of which the first and the last are looked at.
WIDE = tables_of([(-1, [512, 2048, 1024]), *[(0, [7])] * 3, (0, [2048, 1024])])
NARROW = tables_of([(0, [4095]), *[(0, [7])] * 3, (-2, [1, 0, 256])])


def costs(symbols, sets, tables, weights=None, involved=None, ranks=None):
    symbols = np.array(symbols, dtype=np.int32)
    tokens = symbols.shape[1]
    own = np.arange(tokens)
    return token_costs(
        symbols,
        np.stack([own] * 3, axis=1) if involved is None else np.array(involved),
        np.zeros((tokens, 1, 2), dtype=np.int32) if weights is None else np.array(weights, dtype=np.int32),
        np.array(sets),
        np.full(tokens, len(symbols)) if ranks is None else np.array(ranks),
        cost_tables(tables),
    )


def bits(tables, coefficient, value):
    """By the dense table, an escape's own bytes included."""
    dense = tables.dense(0, coefficient)
    index = value + VALUE_OFFSET
    if 0 <= index < 255 and dense[index]:
        return -np.log2(dense[index] / PROB_SUM)
    return -np.log2(dense[255] / PROB_SUM) + ESCAPED_BITS


def test_bits_are_by_hand_those_of_frequencies_so_many_times_as_coefficients_are_left_out():
    assert SAMPLED == 4
    # 1/8 and 1/2; 1/2 and 1/4; 1/4 and an escape of 1/4
    found = costs([[-1, 0, 1], *[[9] * 3] * 3, [0, 1, 2]], [[0]] * 3, [WIDE])

    assert found[:, 0, 0].tolist() == [4 * (3 + 1), 4 * (1 + 2), 4 * (2 + 2 + ESCAPED_BITS)]


def test_each_choice_of_tables_has_its_own_and_none_is_infinite():
    found = costs([[0], [0], [0], [0], [0]], [[0, 1, -1]], [WIDE, NARROW])

    assert found.shape == (1, 1, 3)
    assert found[0, 0, :2].tolist() == pytest.approx([4 * (1 + 1), 4 * (np.log2(4096 / 4095) + 4)], rel=1e-6)
    assert np.isinf(found[0, 0, 2])


def test_a_value_within_a_run_that_has_no_frequency_costs_much_and_not_everything():
    found = costs([[0], [0], [0], [0], [-1]], [[0]], [NARROW])

    assert 4 * 16 < float(found[0, 0, 0]) < 4 * 40


@pytest.mark.parametrize("value", [-(1 << 20), -128, 128, 1 << 20])
def test_what_no_table_holds_is_an_escape(value):
    assert costs([[value], [0], [0], [0], [0]], [[0]], [WIDE])[0, 0, 0] == 4 * (3 + ESCAPED_BITS + 1)


def test_coefficients_beyond_a_tokens_rank_cost_nothing():
    assert costs([[0, 0], *[[0, 0]] * 4], [[0], [0]], [WIDE], ranks=[5, 4])[:, 0, 0].tolist() == [8, 4]


def test_tables_of_few_coefficients_stand_beside_those_of_many():
    few = tables_of([(0, [1024])])
    found = costs([[0], [0], [0], [0], [0]], [[0, 1, 2]], [WIDE, few, NARROW], ranks=[1])

    assert found[0, 0].tolist() == pytest.approx([4 * 1, 4 * 2, 4 * np.log2(4096 / 4095)], abs=1e-5)


@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_costs_are_of_what_predictions_leave_and_the_same_for_any_number_of_threads(data):
    coefficients, tokens = data.draw(st.integers(1, 13)), data.draw(st.integers(1, 12))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    tables = [
        tables_of([(rng.integers(-9, 3), rng.integers(1, 500, rng.integers(1, 8))) for _ in range(coefficients)])
        for _ in range(2)
    ]
    symbols = rng.integers(-12, 12, (coefficients, tokens)).astype(np.int32)
    involved = np.stack([np.arange(tokens), *(rng.integers(0, tokens, tokens) for _ in range(2))], axis=1)
    weights = rng.integers(0, 2 * ONE, (tokens, 3, 2)).astype(np.int32)
    weights[:, 0] = 0
    sets, ranks = rng.integers(-1, 2, (tokens, 3)), rng.integers(1, coefficients, tokens, endpoint=True)
    threads = torch.get_num_threads()
    try:
        found = []
        for count in (1, 2):
            torch.set_num_threads(count)
            found.append(costs(symbols, sets, tables, weights, involved, ranks))
    finally:
        torch.set_num_threads(threads)
    assert np.array_equal(*found)

    for mode in range(3):
        predictions = Predictions(involved.astype(np.int32), weights[:, mode], ranks.astype(np.int32))
        left = symbols - predict(symbols, predictions)
        for token in range(tokens):
            for choice, which in enumerate(sets[token]):
                rows = range(0, ranks[token], SAMPLED)
                wanted = np.inf if which < 0 else 4 * sum(bits(tables[which], row, left[row, token]) for row in rows)
                assert float(found[0][token, mode, choice]) == pytest.approx(wanted, rel=1e-5)
