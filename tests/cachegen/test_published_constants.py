"""Every constant of the baselines against what the CacheGen paper and its published code (commit 6bed34c) say."""

import numpy as np
import pytest
import torch
from checks import IDENTITY, make_chunk

from cachegen.codecs.cachegen_repo import (
    SECTION_STREAM_LENGTHS,
    SECTION_STREAMS,
    SECTION_TABLES,
    SECTION_TOKEN_SCALES,
)
from cachegen.codecs.published_levels import PUBLISHED_LEVELS, largest_values, row_bins
from cachegen.codecs.published_quantizer import quantize, token_scales
from cachegen.codecs.quantize import SECTION_SYMBOLS
from cachegen.container import unpack
from cachegen.encoding import Encoding, parse_encoding
from cachegen.kernels import anchor, numba_range, range_coder
from cachegen.kernels.cumulative import cumulative_tables
from cachegen.pipeline import encode_chunk


def sections_of(kv, name):
    return unpack(encode_chunk(kv, parse_encoding(name), IDENTITY, None)).sections


# The paper, section 5.2.


def test_paper_groups_ten_tokens_behind_an_8_bit_anchor():
    assert anchor.GROUP_TOKENS == 10
    assert [anchor.num_groups(tokens) for tokens in (1, 10, 11, 1500)] == [1, 1, 2, 150]
    assert 2 * anchor.ANCHOR_LARGEST + 1 == 2**8 - 1


@pytest.mark.parametrize(("layers", "sizes"), [(3, [1, 1, 1]), (30, [10, 10, 10]), (32, [11, 11, 10])])
def test_paper_bins_are_a_half_one_and_one_and_a_half_in_equal_thirds_of_the_layers(layers, sizes):
    default_level = anchor.LEVEL_MULTIPLIERS.index(1.0)
    bins = anchor.bins(np.ones(2 * layers, dtype=np.float32), default_level)

    assert bins.tolist() == [width for width, size in zip((0.5, 1.0, 1.5), sizes, strict=True) for _ in range(2 * size)]


# The paper, section 7.1: default quantization at 8, 4 and 3 bits.


@pytest.mark.parametrize(("name", "levels"), [("quant8", 255), ("quant4", 15), ("quant3", 7)])
def test_default_quantization_has_as_many_levels_as_its_bits_allow_about_zero(name, levels):
    bits, largest = int(name.removeprefix("quant")), (levels - 1) / 2
    # scales that are powers of two, so that the largest value meets the largest symbol
    ramp = torch.linspace(-largest, largest, 1024)
    kv = torch.stack((ramp, 2 * ramp)).reshape(1, 2, 1, 1, -1)
    body = np.frombuffer(sections_of(kv, name)[SECTION_SYMBOLS], dtype=np.uint8)
    symbols = np.packbits(np.unpackbits(body, bitorder="little").reshape(-1, bits), axis=1, bitorder="little")

    assert len(np.unique(symbols)) == levels == 2**bits - 1


# The published code's quantizer and levels.


def test_published_bins_are_an_upper_bound_that_is_never_reached():
    largest = largest_values(np.array([32, 16, 12]))

    assert largest.tolist() == [15, 7, 5]
    assert (2 * largest + 1).tolist() == [31, 15, 11]


@pytest.mark.parametrize(
    ("level", "keys", "values"),
    [
        (0, {(0, 10): 32, (10, 20): 32, (20, 32): 32}, {(0, 2): 32, (2, 32): 32}),
        (1, {(0, 10): 32, (10, 20): 16, (20, 32): 16}, {(0, 2): 32, (2, 32): 16}),
        (2, {(0, 10): 16, (10, 20): 16, (20, 32): 12}, {(0, 2): 16, (2, 32): 12}),
    ],
)
def test_published_levels_of_32_layers(level, keys, values):
    bins = row_bins(level, 32).reshape(32, 2)
    for column, groups in enumerate((keys, values)):
        for (first, end), expected in groups.items():
            assert set(bins[first:end, column].tolist()) == {expected}


@pytest.mark.parametrize(
    ("layers", "first_key_layers", "first_value_layers"), [(1, 1, 1), (2, 1, 1), (12, 4, 1), (30, 9, 2), (80, 25, 5)]
)
def test_boundaries_of_other_depths_are_the_same_shares_and_one_layer_at_least(
    layers, first_key_layers, first_value_layers
):
    bins = row_bins(1, layers).reshape(layers, 2)

    assert (bins == 32).sum(axis=0).tolist() == [first_key_layers, first_value_layers]
    assert (bins[:first_key_layers, 0] == 32).all()
    assert (bins[:first_value_layers, 1] == 32).all()


def test_third_group_of_keys_starts_at_twenty_of_32():
    assert [int((row_bins(2, layers)[::2] == 12).sum()) for layers in (32, 30, 8, 3, 1)] == [12, 11, 3, 1, 0]


def test_published_scale_is_the_largest_magnitude_over_all_channels_in_16_bits():
    x = np.array([[[1.0, -3.0], [0.5, 0.25]], [[0.0, 0.0], [7.0, -7.0]]], dtype=np.float32)
    for dtype in (torch.float16, torch.bfloat16):
        bits, values = token_scales(x, dtype)

        assert bits.dtype == np.uint16
        assert values.tolist() == [[3.0, 0.5], [0.0, 7.0]]


def test_published_symbols_round_half_to_even_about_m():
    x = np.array([[7.0, 0.5, 1.5, 2.5, -0.5, -1.5, -7.0, 0.0]], dtype=np.float32)

    symbols = quantize(x, np.array([7.0], dtype=np.float32), 7)
    assert symbols[:, 0].tolist() == [14, 8, 8, 10, 6, 6, 0, 7]


# The published code's tables and bitstreams.


def test_tables_have_33_entries_at_the_two_finer_levels_and_17_at_the_coarsest():
    assert [published.table_bins + 1 for published in PUBLISHED_LEVELS] == [33, 33, 17]
    for level in range(3):
        kv = make_chunk(layers=4, tokens=12, heads=1, dim=5)
        body = sections_of(kv, f"cachegen-repo-{level}")[SECTION_TABLES]
        assert len(body) == 2 * (4 * 2) * 5 * (PUBLISHED_LEVELS[level].table_bins + 1)


def test_cumulative_table_of_a_known_histogram():
    """Four tokens with the symbols 0, 0, 1, 3: (65535 - 32) * below / 4 + i, worked out by hand."""
    cdf = cumulative_tables(np.array([[0, 3, 0, 1]], dtype=np.uint8), 32)[0]

    assert cdf[:5].tolist() == [0, 32751 + 1, 49127 + 2, 49127 + 3, 65503 + 4]
    assert cdf[5:].tolist() == list(range(65508, 65536))


def test_more_tokens_than_16_bits_count_make_a_sound_table():
    symbols = np.full((1, 70_001), 15, dtype=np.uint8)
    cdf = cumulative_tables(symbols, 32)[0]

    assert cdf.tolist() == [*range(16), *range(65503 + 16, 65536)]


@pytest.mark.parametrize("coder", [range_coder, numba_range], ids=["reference", "numba"])
def test_bitstream_of_one_bit_symbols_is_those_bits_and_the_two_that_end_it(coder):
    """Halves: each symbol settles one bit, nothing is put off; low ends at 0, so 0 and one pending 1 follow."""
    halves = np.array([0, 0x8000, 0xFFFF], dtype=np.uint16).reshape(1, -1)
    coded = coder.encode_row(np.array([[1, 0, 1, 1]], dtype=np.uint8), halves)

    assert coded.data.tolist() == [0b1011_01_00]
    assert coded.lengths.tolist() == [[1]]


def test_runs_are_256_tokens_with_a_32_bit_length_for_each_layer_and_channel():
    assert (range_coder.RUN_TOKENS, range_coder.PRECISION_BITS) == (256, 16)
    for tokens, runs in ((1, 1), (256, 1), (257, 2), (1000, 4)):
        body = sections_of(make_chunk(layers=1, tokens=tokens, heads=1, dim=3), "cachegen-repo-1")[
            SECTION_STREAM_LENGTHS
        ]
        assert len(body) == 4 * runs * 2 * 3


@pytest.mark.parametrize(
    ("tokens", "tables", "lengths"),
    [
        (256, 2.06, 0.125),
        (512, 1.03, 0.125),
        (1000, 0.53, 0.125),
        (1500, 0.35, 0.125),
        (4096, 0.13, 0.125),
        (9450, 0.056, 0.125),
    ],
)
def test_metadata_costs_as_many_bits_an_element_as_in_the_published_code(tokens, tables, lengths):
    kv = make_chunk(layers=1, tokens=tokens, heads=1, dim=4)
    sections = sections_of(kv, "cachegen-repo-1")

    assert 8 * len(sections[SECTION_TABLES]) / kv.numel() == pytest.approx(tables, abs=0.005)
    assert 8 * len(sections[SECTION_STREAM_LENGTHS]) / kv.numel() == pytest.approx(lengths, abs=0.004)


def test_scales_cost_16_bits_a_token_over_all_channels():
    kv = make_chunk(layers=1, tokens=32, heads=8, dim=128)

    assert 8 * len(sections_of(kv, "cachegen-repo-1")[SECTION_TOKEN_SCALES]) / kv.numel() == 16 / 1024


def test_every_byte_of_a_chunk_is_one_of_its_sections_or_of_its_header():
    kv = make_chunk(layers=2, tokens=300, heads=2, dim=8)
    data = encode_chunk(kv, Encoding("cachegen-repo", 1), IDENTITY, None)
    sections = unpack(data).sections

    assert list(sections) == [SECTION_TOKEN_SCALES, SECTION_TABLES, SECTION_STREAM_LENGTHS, SECTION_STREAMS]
    assert len(data) == 152 + 32 * 4 + sum(map(len, sections.values()))
