from dataclasses import replace

import numpy as np
import pytest
from checks import backends
from hypothesis import given, settings
from hypothesis import strategies as st

from cachegen.codecs.frequencies import build_tables
from cachegen.errors import FormatError
from cachegen.kernels.base import num_lanes
from cachegen.kernels.tables import FrequencyTables

ALL = slice(None)
FIELDS = ("states", "num_words", "words", "num_escapes", "escapes")


def random_symbols(rows, channels, tokens, spread, seed=0):
    rng = np.random.default_rng(seed)
    sizes = rng.uniform(0.05, 1, (rows, channels, 1)) * spread
    return np.rint(rng.standard_normal((rows, channels, tokens)) * sizes).astype(np.int32)


def tables_of(symbols):
    counts = np.zeros((*symbols.shape[:2], 256), dtype=np.uint32)
    backends()[0].count(symbols, counts)
    return build_tables(counts)


def narrow_tables(rows, channels):
    """Tables with the three values -1, 0, 1 alone, so that most values are escapes."""
    run = np.array([1000, 2000, 500], dtype=np.uint16)
    return FrequencyTables(
        np.full((rows, channels), 126, dtype=np.uint8),
        np.full((rows, channels), 3, dtype=np.uint8),
        np.tile(run, rows * channels),
    )


@pytest.mark.parametrize("tokens", [1, 9, 10, 11, 63, 100, 513])
@pytest.mark.parametrize(("rows", "channels"), [(2, 1), (6, 7), (2, 33)])
def test_backends_write_and_read_the_same_streams(tokens, rows, channels):
    symbols = random_symbols(rows, channels, tokens, spread=20)
    tables = tables_of(random_symbols(rows, channels, 200, spread=20, seed=1))
    reference, numba = (backend.encode_streams(symbols, tables) for backend in backends())

    for name in FIELDS:
        a, b = getattr(reference, name), getattr(numba, name)
        assert (a.dtype, a.shape) == (b.dtype, b.shape), name
        assert np.array_equal(a, b), name
    for backend in backends():
        assert np.array_equal(backend.decode_streams(numba, tokens, tables, ALL), symbols)


@settings(max_examples=80, deadline=None)
@given(
    values=st.lists(st.integers(-(2**28), 2**28), min_size=1, max_size=40),
    channels=st.integers(1, 3),
)
def test_any_values_survive_even_where_every_one_is_an_escape(values, channels):
    symbols = np.tile(np.array(values, dtype=np.int32), (2, channels, 1))
    tables = narrow_tables(2, channels)
    for backend in backends():
        coded = backend.encode_streams(symbols, tables)

        assert np.array_equal(backend.decode_streams(coded, len(values), tables, ALL), symbols)
        assert coded.num_escapes.sum() == (np.abs(symbols) > 1).sum()


def test_a_symbol_never_takes_more_than_one_word():
    symbols = np.full((2, 3, 700), 99, dtype=np.int32)
    coded = backends()[1].encode_streams(symbols, narrow_tables(2, 3))

    assert coded.num_words.max() <= 3 * 700


@pytest.mark.parametrize(("symbols", "lanes"), [(1, 1), (1023, 1), (1024, 2), (9984, 16), (88_320, 32)])
def test_small_streams_get_few_lanes(symbols, lanes):
    assert num_lanes(symbols) == lanes


def test_size_is_within_a_percent_of_what_the_tables_promise():
    symbols = random_symbols(2, 16, 4000, spread=10)
    tables = tables_of(symbols)
    coded = backends()[1].encode_streams(symbols, tables)

    promised = 0.0
    for row in range(2):
        for channel in range(16):
            table = tables.dense(row, channel)
            promised += (12 - np.log2(table[symbols[row, channel] + 127])).sum()
    assert len(coded.words) * 16 + coded.states.size * 32 == pytest.approx(promised, rel=0.01)


def soundly_coded():
    symbols = random_symbols(4, 5, 300, spread=20)
    tables = narrow_tables(4, 5)
    return backends()[1].encode_streams(symbols, tables), tables


def change(coded, name, edit):
    array = getattr(coded, name).copy()
    edit(array)
    return replace(coded, **{name: array})


def move(row, by):
    def edit(counts):
        counts[row] += by

    return edit


def flip(at):
    def edit(array):
        array.flat[at] ^= 1

    return edit


@pytest.mark.parametrize("backend", backends(), ids=["reference", "numba"])
@pytest.mark.parametrize(
    ("name", "edit"),
    [
        ("num_words", move(3, -1)),
        ("num_words", move(0, -200)),
        ("num_escapes", move(3, -1)),
        ("states", flip(0)),
        ("words", flip(-1)),
        ("words", flip(40)),
    ],
)
def test_damaged_streams_are_refused_with_their_row(backend, name, edit):
    coded, tables = soundly_coded()

    with pytest.raises(FormatError, match=r"rANS stream of row [0-3]"):
        backend.decode_streams(change(coded, name, edit), 300, tables, ALL)


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), words=st.integers(0, 60), escapes=st.integers(0, 60))
def test_random_streams_end_in_an_error_and_never_outside_the_arrays(seed, words, escapes):
    rng = np.random.default_rng(seed)
    _, tables = soundly_coded()
    coded, _ = soundly_coded()
    hostile = replace(
        coded,
        states=rng.integers(2**16, 2**32, coded.states.shape, dtype=np.uint32),
        num_words=np.full(4, words, dtype=np.int64),
        words=rng.integers(0, 2**16, 4 * words, dtype=np.uint16),
        num_escapes=np.full(4, escapes, dtype=np.int64),
        escapes=rng.integers(-9, 9, 4 * escapes, dtype=np.int32),
    )
    for backend in backends():
        with pytest.raises(FormatError):
            backend.decode_streams(hostile, 300, tables, ALL)


@pytest.mark.parametrize("backend", backends(), ids=["reference", "numba"])
@pytest.mark.parametrize("rows", [slice(0, 1), slice(1, 3), slice(2, 4), slice(0, 4)])
def test_some_rows_decode_without_the_others(backend, rows):
    symbols = random_symbols(4, 5, 300, spread=20)
    tables = narrow_tables(4, 5)
    coded = backend.encode_streams(symbols, tables)

    assert np.array_equal(backend.decode_streams(coded, 300, tables, rows), symbols[rows])


@pytest.mark.parametrize("backend", backends(), ids=["reference", "numba"])
def test_a_damaged_row_is_named_by_its_place_among_all(backend):
    coded, tables = soundly_coded()
    damaged = change(coded, "num_words", move(3, -1))

    backend.decode_streams(damaged, 300, tables, slice(0, 3))
    with pytest.raises(FormatError, match="row 3"):
        backend.decode_streams(damaged, 300, tables, slice(3, 4))
