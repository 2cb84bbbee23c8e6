import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cachegen.codecs.frequencies import build_tables
from cachegen.errors import FormatError
from cachegen.kernels.tables import FrequencyTables


def counts_of(mapping):
    counts = np.zeros((1, 1, 256), dtype=np.uint32)
    for value, count in mapping.items():
        counts[0, 0, value + 127] = count
    return counts


def table_of(mapping):
    return build_tables(counts_of(mapping)).dense(0, 0)


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.integers(-127, 128), st.integers(0, 10**6), max_size=256))
def test_frequencies_sum_to_4096_and_leave_the_escape_one(mapping):
    table = table_of(mapping)

    assert table.sum() == 4096
    assert table[255] >= 1
    assert table[127] >= 1
    assert table.max() < 4096


def test_frequencies_follow_the_counts():
    table = table_of({-1: 2500, 0: 5000, 1: 2500})

    assert table[126:129].tolist() == pytest.approx([1024, 2048, 1024], abs=1)


def test_a_value_too_rare_to_pay_for_its_frequency_is_left_to_the_escape():
    table = table_of({0: 10**6, 5: 10, 100: 30})

    assert table[127 + 5] == 0
    assert table[127 + 100] > 0
    assert table[255] == 1


def test_values_seen_once_make_room_for_values_never_seen():
    assert table_of(dict.fromkeys(range(100), 1))[255] > 1000


def test_cost_is_near_the_entropy_of_what_was_counted():
    rng = np.random.default_rng(0)
    counts = np.bincount(np.rint(rng.standard_normal(10_000) * 6).astype(int) + 127, minlength=256)
    table = build_tables(counts.reshape(1, 1, 256)).dense(0, 0)

    seen = counts > 0
    share = counts[seen] / counts.sum()
    entropy = -(share * np.log2(share)).sum()
    bits = np.where(table > 0, 12 - np.log2(np.maximum(table, 1)), 12 - np.log2(table[255]) + 8)
    assert (bits[seen] * share).sum() == pytest.approx(entropy, rel=0.003)


@pytest.mark.parametrize(
    ("first", "count", "frequencies", "message"),
    [
        ([[0]], [[0]], [], "empty table"),
        ([[250]], [[6]], [1, 1, 1, 1, 1, 1], "passes index 254"),
        ([[0]], [[2]], [1], "counts sum to 2"),
        ([[0]], [[1]], [1, 1], "counts sum to 1"),
        ([[0]], [[2]], [0, 5], "frequency 0"),
        ([[0]], [[2]], [5, 0], "frequency 0"),
        ([[0]], [[2]], [4000, 96], "row 0, channel 0 leaves no room for the escape"),
        ([[0]], [[2]], [65_535, 65_535], "no room for the escape"),
        ([0], [1], [1], "2-D"),
        ([[0]], [[1, 1]], [1, 1], "2-D"),
    ],
)
def test_arrays_that_are_no_tables_are_refused(first, count, frequencies, message):
    with pytest.raises(FormatError, match=message):
        FrequencyTables(
            np.array(first, dtype=np.uint8),
            np.array(count, dtype=np.uint8),
            np.array(frequencies, dtype=np.uint16),
        )


def test_arrays_of_another_type_are_refused():
    with pytest.raises(FormatError, match="frequencies is int64, not uint16"):
        FrequencyTables(np.zeros((1, 1), np.uint8), np.ones((1, 1), np.uint8), np.ones(1, np.int64))
