import struct

import numpy as np
import pytest
from checks import backends
from hypothesis import given, settings
from hypothesis import strategies as st

from cachegen.codecs.streams import pack_varints, read_streams, unpack_varints, varint_bytes, write_streams
from cachegen.errors import FormatError
from cachegen.kernels.tables import FrequencyTables

ROWS, CHANNELS, TOKENS, LARGEST = 4, 3, 50, 2**28
WORDS_AT = 8
STATES_AT = 8 + 8 * ROWS


def tables():
    run = np.array([1000, 2000, 500], dtype=np.uint16)
    shape = (ROWS, CHANNELS)
    return FrequencyTables(np.full(shape, 126, np.uint8), np.full(shape, 3, np.uint8), np.tile(run, ROWS * CHANNELS))


def coded():
    symbols = np.random.default_rng(0).integers(-3, 4, (ROWS, CHANNELS, TOKENS)).astype(np.int32)
    return backends()[1].encode_streams(symbols, tables())


def body_with(offset, form, value):
    body = bytearray(write_streams(coded()))
    struct.pack_into("<" + form, body, offset, value)
    return memoryview(bytes(body))


def test_section_reads_back_as_it_was_written():
    written = coded()
    read = read_streams(memoryview(write_streams(written)), TOKENS, tables(), LARGEST)

    for name in ("states", "num_words", "words", "num_escapes", "escapes"):
        a, b = getattr(written, name), getattr(read, name)
        assert a.dtype == b.dtype
        assert np.array_equal(a, b)


@pytest.mark.parametrize(
    ("offset", "form", "value", "message"),
    [
        (0, "I", 0, "0 lanes"),
        (0, "I", 3, "3 lanes"),
        (0, "I", 64, "64 lanes"),
        (0, "I", 2**32 - 1, "lanes"),
        (0, "I", 2, "its directory implies"),
        (4, "I", 2**32 - 1, "its directory implies"),
        (4, "I", 0, "its directory implies"),
        (WORDS_AT, "I", CHANNELS * TOKENS + 1, "stream 0 has 151 words"),
        (WORDS_AT, "I", 2**32 - 1, "words for 150 symbols"),
        (WORDS_AT + 8, "I", 0, "stream 1 has 0 words, too few"),
        (WORDS_AT, "I", 50, "its directory implies"),
        (WORDS_AT + 4, "I", 2**32 - 1, "escapes for 150 symbols"),
        (WORDS_AT + 4, "I", 0, "varints"),
        (STATES_AT, "I", 65_535, "lane state 0 is 65535"),
    ],
)
def test_directories_that_lie_are_refused_by_name(offset, form, value, message):
    with pytest.raises(FormatError, match=message):
        read_streams(body_with(offset, form, value), TOKENS, tables(), LARGEST)


def test_every_truncation_of_the_section_is_refused():
    body = memoryview(write_streams(coded()))
    for length in range(len(body)):
        with pytest.raises(FormatError):
            read_streams(body[:length], TOKENS, tables(), LARGEST)


def test_few_words_cannot_claim_many_symbols():
    """A small file must not make its reader allocate a large tensor."""
    with pytest.raises(FormatError, match="too few for"):
        read_streams(memoryview(write_streams(coded())), 1 << 20, tables(), LARGEST)


@pytest.mark.parametrize("value", [0, -1])
def test_the_cheapest_stream_that_an_encoder_writes_is_accepted(value):
    run = np.array([4095], dtype=np.uint16)
    cheap = FrequencyTables(np.full((2, 1), 127 + value, np.uint8), np.ones((2, 1), np.uint8), np.tile(run, 2))
    symbols = np.full((2, 1, 200_000), value, dtype=np.int32)
    written = backends()[1].encode_streams(symbols, cheap)

    read = read_streams(memoryview(write_streams(written)), 200_000, cheap, LARGEST)

    assert written.num_words.max() < 200
    assert np.array_equal(backends()[1].decode_streams(read, 200_000, cheap, slice(None)), symbols)


@settings(deadline=None)
@given(st.lists(st.integers(-(2**31), 2**31 - 1)))
def test_varints_unpack_to_what_was_packed(values):
    array = np.array(values, dtype=np.int32)
    packed = pack_varints(array)

    assert len(packed) == varint_bytes(array).sum()
    assert unpack_varints(memoryview(packed), len(values), 2**31).tolist() == values


@pytest.mark.parametrize(
    ("value", "packed"), [(0, "00"), (-1, "01"), (63, "7e"), (64, "8001"), (-128, "ff01"), (8192, "808001")]
)
def test_varints_have_the_bytes_of_the_format(value, packed):
    assert pack_varints(np.array([value], dtype=np.int32)).hex() == packed


@pytest.mark.parametrize(
    ("packed", "count", "message"),
    [
        ("", 1, "not 1 varints"),
        ("00", 0, "not 0 varints"),
        ("80", 0, "not 0 varints"),
        ("80", 1, "not 1 varints"),
        ("0080", 1, "not 1 varints"),
        ("0000", 1, "not 1 varints"),
        ("8000", 1, "than it need be"),
        ("808080808001", 1, "longer than 5 bytes"),
        ("ffffffff7f", 1, "outside"),
        ("8002", 1, "escape 0 is 128, outside"),
    ],
)
def test_byte_runs_that_are_no_escapes_are_refused(packed, count, message):
    with pytest.raises(FormatError, match=message):
        unpack_varints(memoryview(bytes.fromhex(packed)), count, 127)
