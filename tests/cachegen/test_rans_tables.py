"""Both ways in which Numba's decoder finds whose a slot is, for tables of every form, against the reference."""

import numpy as np
import pytest
from checks import backends
from hypothesis import given, settings
from hypothesis import strategies as st

from cachegen.errors import FormatError
from cachegen.kernels import numba_rans
from cachegen.kernels.base import CodedStreams, PlacedStream
from cachegen.kernels.numba_rans import decode_placed
from cachegen.kernels.tables import ESCAPE, PROB_SUM, VALUE_OFFSET, FrequencyTables

ALL = slice(None)
TOKENS = [1, 2, 23, 24, 25, 200]
FORMS = {
    "one symbol and a rare escape": (127, [4095]),
    "one rare symbol": (127, [1]),
    "one symbol at index 0": (0, [300]),
    "one symbol at index 254": (254, [4095]),
    "255 symbols": (0, [16] * 255),
    "255 symbols, one of them likely": (0, [1] * 100 + [3841] + [1] * 154),
    "from index 0": (0, [7, 900, 30]),
    "to index 254": (251, [30, 1, 2000, 9]),
    "zeros inside": (120, [5, 0, 0, 700, 0, 1, 0, 0, 0, 90]),
    "zeros between the ends": (0, [1] + [0] * 253 + [1]),
    "two symbols": (126, [2048, 2047]),
}


def tables_of(*forms):
    """Tables of one row, a channel of each form: the first index and its run."""
    first, count = ([form[0] for form in forms], [len(form[1]) for form in forms])
    runs = np.array([frequency for _, run in forms for frequency in run], dtype=np.uint16)
    return FrequencyTables(np.array([first], dtype=np.uint8), np.array([count], dtype=np.uint8), runs)


def symbols_of(tables, tokens, seed=0):
    """For each channel first what it codes at all, and then what it escapes: gaps, neighbours and far values."""
    rng = np.random.default_rng(seed)
    channels = []
    for channel in range(tables.channels):
        dense = tables.dense(0, channel)[:ESCAPE]
        coded, gaps = np.flatnonzero(dense) - VALUE_OFFSET, np.flatnonzero(dense == 0) - VALUE_OFFSET
        escaped = rng.choice([-(2**28), 2**28, -128, 128, 1000, *gaps], tokens)
        is_escaped = rng.random(tokens) < 0.2
        channels.append(np.where(is_escaped, escaped, rng.choice(coded, tokens)))
    return np.array([channels], dtype=np.int32)


def check_decoded(symbols, tables):
    reference, numba = backends()
    coded, tokens = numba.encode_streams(symbols, tables), symbols.shape[2]
    decoded = numba.decode_streams(coded, tokens, tables, ALL)

    assert decoded.dtype == np.int32
    assert np.array_equal(decoded, symbols)
    assert np.array_equal(reference.decode_streams(coded, tokens, tables, ALL), decoded)


def test_the_numbers_of_tokens_lie_on_both_sides_of_where_slots_are_worth_it():
    assert {numba_rans._WORTH_SLOTS - 1, numba_rans._WORTH_SLOTS} < set(TOKENS)


@pytest.mark.parametrize("tokens", TOKENS)
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_every_form_of_table_decodes_as_the_reference_does(form, tokens):
    tables = tables_of(form)
    for seed in range(5):
        check_decoded(symbols_of(tables, tokens, seed), tables)


@pytest.mark.parametrize("tokens", TOKENS)
def test_a_table_leaves_nothing_behind_for_the_next(tokens):
    tables = tables_of(*FORMS.values(), *reversed(FORMS.values()))

    check_decoded(symbols_of(tables, tokens), tables)


@pytest.mark.parametrize("tokens", [1, 200])
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_every_symbol_of_a_table_and_its_escape_come_back(form, tokens):
    tables = tables_of(form)
    values = [*(np.flatnonzero(tables.dense(0, 0)[:ESCAPE]) - VALUE_OFFSET), 128, -(2**28)]
    for value in values:
        check_decoded(np.full((1, 1, tokens), value, dtype=np.int32), tables)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_both_ways_find_whose_each_slot_is(form):
    run = np.array(form[1], dtype=np.uint16)
    bounds, slots = np.empty(257, dtype=np.uint32), np.empty(PROB_SUM, dtype=np.uint8)
    numba_rans._load_bounds(run, bounds)
    numba_rans._load_slots(bounds, len(run) + 1, slots)
    searched = [numba_rans._search(bounds, len(run) + 1, slot) for slot in np.arange(PROB_SUM, dtype=np.uint32)]
    # the escape has what the run leaves
    expected = np.repeat(np.arange(len(run) + 1), [*form[1], PROB_SUM - sum(form[1])])

    assert np.array_equal(slots, expected)
    assert np.array_equal(searched, expected)


@st.composite
def forms(draw):
    weights = draw(st.lists(st.integers(0, 16), min_size=1, max_size=255))
    weights[0], weights[-1] = max(1, weights[0]), max(1, weights[-1])
    largest = (PROB_SUM - 1) // sum(weights)
    scale = draw(st.integers(1, largest) | st.just(largest))
    return draw(st.integers(0, ESCAPE - len(weights))), [weight * scale for weight in weights]


@settings(max_examples=120, deadline=None)
@given(forms=st.lists(forms(), min_size=1, max_size=4), tokens=st.sampled_from([*TOKENS, 40]), seed=st.integers(0, 999))
def test_any_tables_decode_as_the_reference_does(forms, tokens, seed):
    tables = tables_of(*forms)

    check_decoded(symbols_of(tables, tokens, seed), tables)


@pytest.mark.parametrize("dtype", [np.int16, np.int32])
@pytest.mark.parametrize("tokens", TOKENS)
def test_symbols_land_in_their_places_and_nowhere_else(tokens, dtype):
    tables = tables_of(*FORMS.values())
    symbols = np.clip(symbols_of(tables, tokens), -30_000, 30_000)
    coded = backends()[1].encode_streams(symbols, tables)
    into = np.full((len(FORMS) + 5, tokens + 7), 77, dtype=dtype)
    expected = into.copy()
    expected[2 : 2 + len(FORMS), 3 : 3 + tokens] = symbols[0]
    decode_placed(PlacedStream(lambda: coded, tables, 2, slice(3, 3 + tokens), "a stream"), into)

    assert np.array_equal(into, expected)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    words=st.integers(0, 60),
    escapes=st.integers(0, 60),
    tokens=st.sampled_from([2, 23, 24, 25]),
)
def test_random_streams_are_refused_on_both_ways(seed, words, escapes, tokens):
    rng = np.random.default_rng(seed)
    tables = tables_of(*FORMS.values())
    sound = backends()[1].encode_streams(symbols_of(tables, tokens), tables)
    hostile = CodedStreams(
        rng.integers(2**16, 2**32, sound.states.shape, dtype=np.uint32),
        np.array([words]),
        rng.integers(0, 2**16, words, dtype=np.uint16),
        np.array([escapes]),
        rng.integers(-9, 9, escapes, dtype=np.int32),
    )
    for backend in backends():
        with pytest.raises(FormatError, match="row 0"):
            backend.decode_streams(hostile, tokens, tables, ALL)
