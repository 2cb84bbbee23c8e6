"""The published code's range coder: both ways of computing it, and what ends in an error."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cachegen.errors import FormatError
from cachegen.kernels import numba_range, range_coder
from cachegen.kernels.cumulative import check_cumulative_tables, cumulative_tables
from cachegen.kernels.range_coder import CodedRow, most_bytes

CODERS = (range_coder, numba_range)


def some_symbols(channels=3, tokens=300, spread=3.0, seed=0):
    rng = np.random.default_rng(seed)
    return np.clip(np.rint(rng.standard_normal((channels, tokens)) * spread + 15), 0, 30).astype(np.uint8)


def even_cdfs(channels, num_bins=32):
    """Tables that know nothing."""
    cdf = np.arange(num_bins + 1) * (0xFFFF // num_bins)
    cdf[-1] = 0xFFFF
    return np.tile(cdf.astype(np.uint16), (channels, 1))


@pytest.mark.parametrize("tokens", [1, 2, 9, 255, 256, 257, 700])
@pytest.mark.parametrize("spread", [0.0, 0.3, 3.0, 12.0])
@pytest.mark.parametrize("own_tables", [True, False])
def test_both_coders_write_the_same_bits_and_read_them_back(tokens, spread, own_tables):
    symbols = some_symbols(tokens=tokens, spread=spread)
    cdfs = cumulative_tables(symbols, 32) if own_tables else even_cdfs(3)
    reference, compiled = (coder.encode_row(symbols, cdfs) for coder in CODERS)

    assert np.array_equal(reference.lengths, compiled.lengths)
    assert np.array_equal(reference.data, compiled.data)
    for coder in CODERS:
        assert np.array_equal(coder.decode_row(compiled, tokens, cdfs), symbols)


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_any_symbols_survive_under_any_tables(data):
    num_bins = data.draw(st.integers(2, 32))
    inner = data.draw(st.sets(st.integers(1, 0xFFFE), min_size=num_bins - 1, max_size=num_bins - 1))
    cdfs = np.array([0, *sorted(inner), 0xFFFF], dtype=np.uint16).reshape(1, -1)
    values = data.draw(st.lists(st.integers(0, num_bins - 1), min_size=1, max_size=300))
    symbols = np.array(values, dtype=np.uint8).reshape(1, -1)
    reference, compiled = (coder.encode_row(symbols, cdfs) for coder in CODERS)

    assert reference.data.tobytes() == compiled.data.tobytes()
    for coder in CODERS:
        assert np.array_equal(coder.decode_row(compiled, len(values), cdfs), symbols)


@pytest.mark.parametrize("tokens", [1, 2, 256])
def test_a_run_of_the_rarest_symbols_takes_its_worst_case_and_leaves_its_neighbours_alone(tokens):
    """16 bits a symbol: the published code gives each stream 256 bytes, and writes on into the next one's."""
    symbols = np.full((3, tokens), 30, dtype=np.uint8)
    symbols[::2] = 3
    cdfs = cumulative_tables(np.full_like(symbols, 3), 32)
    for coder in CODERS:
        coded = coder.encode_row(symbols, cdfs)

        assert coded.lengths[0, 1] == most_bytes(tokens) == 2 * tokens + 1
        assert np.array_equal(coder.decode_row(coded, tokens, cdfs), symbols)


def test_many_bits_put_off_in_a_row_are_written_when_they_settle():
    """A symbol about the middle of the range leaves its first bit open; 256 of them put off far more than 32 bits."""
    cdfs = np.array([0, 0x7000, 0x9000, 0xFFFF], dtype=np.uint16).reshape(1, -1)
    symbols = np.ones((1, 256), dtype=np.uint8)
    for last in (0, 1, 2):
        symbols[0, -1] = last
        reference, compiled = (coder.encode_row(symbols, cdfs) for coder in CODERS)

        assert reference.data.tobytes() == compiled.data.tobytes()
        assert np.array_equal(numba_range.decode_row(compiled, 256, cdfs), symbols)


@pytest.mark.parametrize("coder", CODERS, ids=["reference", "numba"])
def test_size_is_what_the_tables_promise_and_at_most_ten_bits_to_end_each_stream(coder):
    symbols = some_symbols(tokens=256, channels=8)
    cdfs = cumulative_tables(symbols, 32)
    widths = np.diff(np.append(cdfs[:, :-1].astype(float), np.full((8, 1), 65536.0), axis=1), axis=1)
    used = np.take_along_axis(widths, symbols.astype(np.int64), axis=1)
    promised = (16 - np.log2(used)).sum(axis=1)

    bits = coder.encode_row(symbols, cdfs).lengths[0] * 8
    assert (bits >= promised).all()
    assert (bits <= promised + 10).all()


@pytest.mark.parametrize("coder", CODERS, ids=["reference", "numba"])
@pytest.mark.parametrize("change", ["shorter", "longer", "empty", "flipped", "padding"])
def test_streams_that_do_not_end_where_their_symbols_do_are_refused_with_their_place(coder, change):
    symbols = some_symbols(channels=1, tokens=300)
    cdfs = cumulative_tables(symbols, 32)
    coded = coder.encode_row(symbols, cdfs)
    data, lengths = coded.data.copy(), coded.lengths.copy()
    if change == "flipped":
        data[-2] ^= 0x10
    elif change == "padding":
        data[-1] ^= 1
    else:
        data = {"shorter": data[:-1], "longer": np.append(data, np.uint8(0)), "empty": data[: lengths[0, 0]]}[change]
        lengths[1, 0] = len(data) - lengths[0, 0]

    with pytest.raises(FormatError, match="bitstream of run 1, channel 0"):
        coder.decode_row(CodedRow(lengths, data), 300, cdfs)


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), length=st.integers(0, 90))
def test_both_coders_give_the_same_verdict_on_any_bytes(seed, length):
    rng = np.random.default_rng(seed)
    symbols = some_symbols(channels=1, tokens=40)
    cdfs = cumulative_tables(symbols, 32)
    coded = CodedRow(np.full((1, 1), length, dtype=np.int32), rng.integers(0, 256, length, dtype=np.uint8))
    verdicts = []
    for coder in CODERS:
        try:
            verdicts.append(coder.decode_row(coded, 40, cdfs).tobytes())
        except FormatError:
            verdicts.append(None)

    assert verdicts[0] == verdicts[1]


@settings(max_examples=60, deadline=None)
@given(values=st.lists(st.integers(0, 30), min_size=1, max_size=60))
def test_tables_of_any_symbols_pass_their_own_check(values):
    symbols = np.array(values, dtype=np.uint8).reshape(1, -1)
    check_cumulative_tables(cumulative_tables(symbols, 32)[None])
