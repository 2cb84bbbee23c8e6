"""Variants of the paper's codec: what each switch changes, and that nothing else does."""

import numpy as np
import pytest
import torch
from checks import make_chunk, profile_of, same_bits
from tiny_models import random_tokens, tiny_llama

from cachegen.ablation import VARIANTS, run_ablation
from cachegen.codecs.cachegen import CachegenCodec, as_rows
from cachegen.codecs.paper_variant import PaperSwitches, PaperVariant, VariantTables
from cachegen.errors import InvalidInputError
from cachegen.held_out import HeldOutText
from cachegen.kernels import anchor, get_backend
from cachegen.kernels.tables import ALPHABET
from cachegen.kv import layout_of

ALL_IN = PaperSwitches(deltas=True, layer_bins=True, channel_tables=True)
NO_DELTAS = PaperSwitches(deltas=False, layer_bins=True, channel_tables=True)
ONE_BIN = PaperSwitches(deltas=True, layer_bins=False, channel_tables=True)
ONE_TABLE = PaperSwitches(deltas=True, layer_bins=True, channel_tables=False)


def paper_tables(kv, level):
    tables = profile_of(kv).tables
    return VariantTables(tables.anchors, tables.deltas[level])


def round_trip(variant, kv, level):
    tables = paper_tables(kv, level)
    sections = {key: memoryview(body) for key, body in variant.encode(kv, level, tables).items()}
    return variant.decode(sections, layout_of(kv), level, tables)


@pytest.mark.parametrize("tokens", [1, 10, 23])
@pytest.mark.parametrize("level", [0, 3])
def test_with_all_ideas_in_it_is_the_papers_codec_byte_for_byte(tokens, level):
    kv = make_chunk(tokens=tokens)
    tables = profile_of(kv).tables
    codec = CachegenCodec("reference")
    sections = codec.encode(kv, level, tables, 0)
    variant = PaperVariant(ALL_IN)

    assert variant.encode(kv, level, paper_tables(kv, level)) == sections
    views = {key: memoryview(body) for key, body in sections.items()}
    assert same_bits(round_trip(variant, kv, level), codec.decode(views, layout_of(kv), level, tables, 0))


@pytest.mark.parametrize("switches", VARIANTS, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("tokens", [1, 11, 40])
def test_every_variant_decodes_to_within_half_a_bin(switches, dtype, tokens):
    kv = make_chunk(tokens=tokens, dtype=dtype)
    variant = PaperVariant(switches)
    quantized = variant.quantize(as_rows(kv), 2)
    bins = anchor.bins(quantized.sigmas, 2, (1.5, 1.5, 1.5)).max()
    anchor_steps = np.abs(as_rows(kv)).max() / 127
    error = (round_trip(variant, kv, 2).double() - kv.double()).abs().max()

    assert error <= max(bins, anchor_steps) / 2 * 1.01 + kv.double().abs().max() * torch.finfo(dtype).eps


def test_without_deltas_each_value_is_a_multiple_of_its_layers_bin():
    kv = make_chunk(layers=3, tokens=23, dtype=torch.float32)
    x = as_rows(kv).astype(np.float64)
    quantized = PaperVariant(NO_DELTAS).quantize(as_rows(kv), 3)

    sigmas = np.sqrt((x**2).mean(axis=(1, 2)))
    bins = sigmas * np.repeat([0.5, 1.0, 1.5], 2)
    assert quantized.anchors.size == 0
    assert quantized.sigmas == pytest.approx(sigmas, rel=1e-6)
    assert np.array_equal(quantized.deltas.transpose(0, 2, 1), np.rint(x / bins.astype(np.float32)[:, None, None]))


def test_without_bins_by_layer_every_layer_has_the_same_bin():
    kv = make_chunk(layers=3, tokens=23, dtype=torch.float32)
    x = as_rows(kv)
    quantized = PaperVariant(ONE_BIN).quantize(x, 3)
    delta = anchor.deltas(x, anchor.anchor_values(quantized.anchors.transpose(0, 2, 1), quantized.scale_bits))

    expected = np.rint(delta / quantized.sigmas.astype(np.float64)[:, None, None])
    assert np.array_equal(quantized.deltas.transpose(0, 2, 1), expected)


def test_with_one_table_all_channels_share_what_was_counted_in_any():
    counts = np.zeros((4, 3, ALPHABET), dtype=np.uint32)
    counts[:, :, 127] = 10
    counts[1, 2, 130] = 90
    tables = PaperVariant(ONE_TABLE).tables(counts)

    assert all(
        np.array_equal(tables.dense(row, channel), tables.dense(0, 0)) for row in range(4) for channel in range(3)
    )
    assert tables.dense(0, 0)[130] == pytest.approx(4096 * 90 / 210, rel=0.02)


def test_tables_by_channel_code_channels_of_unlike_spread_in_fewer_bytes():
    kv = make_chunk(layers=1, tokens=600, heads=1, dim=8)
    sizes = []
    for channel_tables in (True, False):
        variant = PaperVariant(PaperSwitches(deltas=True, layer_bins=True, channel_tables=channel_tables))
        quantized = variant.quantize(as_rows(kv), 1)
        counts = [np.zeros((2, 8, ALPHABET), dtype=np.uint32) for _ in range(2)]
        for symbols, into in zip((quantized.anchors, quantized.deltas), counts, strict=True):
            get_backend("numba").count(symbols, into)
        sections = variant.encode(kv, 1, VariantTables(*map(variant.tables, counts)))
        sizes.append(sum(map(len, sections.values())))

    assert sizes[0] < 0.9 * sizes[1]


class TextOfTokens:
    """Takes numbers for words."""

    def __call__(self, text, add_special_tokens):
        return {"input_ids": [int(word) for word in text.split()]}


@pytest.fixture
def model():
    llama = tiny_llama(layers=1)
    llama._tokenizer = TextOfTokens()
    return llama


def test_ablation_measures_every_variant_at_every_level(model):
    texts = [" ".join(map(str, random_tokens(130, seed))) for seed in (1, 2)]
    steps = []
    held_out = HeldOutText(model, random_tokens(320, seed=3))
    rows = run_ablation(model, texts, held_out, lambda done, total: steps.append((done, total)))
    by_variant = {str(switches): [row for row in rows if row.variant == str(switches)] for switches in VARIANTS}

    assert [row.variant for row in rows[:3]] == ["quant8", "quant4", "quant3"]
    assert [row.level for row in rows[3:]] == list(range(5)) * len(VARIANTS)
    assert [row.num_bytes for row in rows[:3]] == sorted((row.num_bytes for row in rows[:3]), reverse=True)
    for measured in by_variant.values():
        assert [row.num_bytes for row in measured] == sorted((row.num_bytes for row in measured), reverse=True)
        assert measured[0].kl < measured[-1].kl
    assert steps == [(done, len(steps)) for done in range(1, len(steps) + 1)]
    # tables change sizes alone
    for full, pooled in zip(by_variant[str(ALL_IN)], by_variant[str(ONE_TABLE)], strict=True):
        assert full.kl == pooled.kl
        assert full.num_bytes != pooled.num_bytes
    num_elements = 64 * model.shape.rows * model.shape.channels
    assert rows[0].bits_per_element == 8 * rows[0].num_bytes / num_elements
    # header and section table, a 16-bit scale a token, a byte an element
    assert rows[0].num_bytes == 152 + 2 * 32 + 64 * model.shape.rows * 2 + num_elements


def test_ablation_needs_texts_that_are_long_enough(model):
    with pytest.raises(InvalidInputError, match="a text of 128 tokens"):
        run_ablation(model, ["5 5 5"], HeldOutText(model, random_tokens(320)))
