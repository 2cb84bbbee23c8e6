"""Containers whose checksums are all right and whose sections lie."""

import struct

import pytest
import torch
from checks import identity_of, make_chunk, profile_of, section, with_field, with_section
from hypothesis import given, settings
from hypothesis import strategies as st

from cachegen.codecs.cachegen import (
    SECTION_ANCHOR_SCALES,
    SECTION_ANCHOR_STREAMS,
    SECTION_DELTA_SIGMAS,
    SECTION_DELTA_STREAMS,
)
from cachegen.codecs.cachegen_repo import (
    SECTION_STREAM_LENGTHS,
    SECTION_TABLES,
    SECTION_TOKEN_SCALES,
)
from cachegen.codecs.quantize import SECTION_SCALES, SECTION_SYMBOLS
from cachegen.codecs.raw import SECTION_ELEMENTS
from cachegen.codecs.transform import SECTION_EXACT_TOKENS
from cachegen.container import unpack
from cachegen.encoding import ENCODINGS, parse_encoding
from cachegen.errors import FormatError
from cachegen.pipeline import decode_chunk, encode_chunk

KV = make_chunk(layers=2, tokens=23, heads=1, dim=3)
PROFILE = profile_of(KV)
ONE_TOKEN = make_chunk(layers=1, tokens=1, heads=1, dim=3)


def encoded(name, kv=KV):
    profile = profile_of(kv)
    return encode_chunk(kv, parse_encoding(name), identity_of(profile), profile)


def refused(data, message, profile=PROFILE):
    with pytest.raises(FormatError, match=message):
        decode_chunk(data, profile)


def with_edit(name, section_id, form, offset, value):
    data = encoded(name)
    body = section(data, section_id)
    struct.pack_into("<" + form, body, offset, value)
    return with_section(data, section_id, bytes(body))


@pytest.mark.parametrize("encoding", ENCODINGS, ids=str)
def test_missing_extra_and_foreign_sections_are_refused(encoding):
    data = encoded(str(encoding))
    first = {
        "raw": SECTION_ELEMENTS,
        "quant8": SECTION_SCALES,
        "quant4": SECTION_SCALES,
        "quant3": SECTION_SCALES,
        "cachegen-repo": SECTION_TOKEN_SCALES,
        "transform": SECTION_EXACT_TOKENS,
    }
    section_id = first.get(encoding.codec, SECTION_ANCHOR_SCALES)

    refused(with_section(data, section_id, None), "has sections .* must have")
    refused(with_section(data, 99, b""), "has sections .* must have")
    refused(with_field(data, 144, "I", 77), "has sections .* must have")


@pytest.mark.parametrize("encoding", ENCODINGS, ids=str)
@pytest.mark.parametrize(("offset", "value"), [(36, 1), (36, 3), (40, 2), (44, 4), (48, 22), (48, 24), (48, 2**20)])
def test_every_other_shape_is_refused(encoding, offset, value):
    with pytest.raises(FormatError):
        decode_chunk(with_field(encoded(str(encoding)), offset, "I", value), PROFILE)


@pytest.mark.parametrize("encoding", ENCODINGS, ids=str)
@pytest.mark.parametrize("change", [-1, 1, None])
def test_sections_of_another_length_are_refused(encoding, change):
    data = encoded(str(encoding))
    for section_id in list(unpack(data).sections):
        body = bytes(section(data, section_id))
        edited = b"" if change is None else (body + b"\0" if change > 0 else body[:-1])
        refused(with_section(data, section_id, edited), f"section {section_id}")


def test_codec_that_did_not_write_the_sections_is_refused():
    refused(with_field(with_field(encoded("raw"), 16, "16s", b"quant8"), 32, "B", 255), "must have")


def test_raw_elements_that_are_not_finite_are_refused():
    refused(with_edit("raw", SECTION_ELEMENTS, "H", 8, 0x7FC0), "NaN or Inf")


@pytest.mark.parametrize("name", ["quant8", "quant4", "quant3"])
@pytest.mark.parametrize("bits", [0x7F80, 0x7FC0, 0x8000, 0xBF80, 0xFFFF])
def test_scales_that_are_not_finite_or_negative_are_refused(name, bits):
    refused(with_edit(name, SECTION_SCALES, "H", 6, bits), f"scale 3 is {bits:#06x}")


def test_symbols_outside_the_range_are_refused():
    refused(with_edit("quant8", SECTION_SYMBOLS, "B", 5, 255), "symbol 5 is 255, at most 254")
    refused(with_edit("quant4", SECTION_SYMBOLS, "B", 5, 0xF0), "symbol 11 is 15, at most 14")
    refused(with_edit("quant3", SECTION_SYMBOLS, "B", 3, 0x07), "symbol 8 is 7, at most 6")


def test_bits_behind_the_last_symbol_are_refused():
    refused(with_edit("quant3", SECTION_SYMBOLS, "B", 103, 0x10), "behind the last of 276 symbols")


@pytest.mark.parametrize("bits", [0x7F80, 0x7FC0, 0x8000, 0xFFFF])
def test_anchor_scales_that_are_not_finite_or_negative_are_refused(bits):
    refused(with_edit("cachegen-1", SECTION_ANCHOR_SCALES, "H", 4, bits), f"section 4: scale 2 is {bits:#06x}")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0, -0.0, 2.0**126])
def test_sigmas_that_no_encoder_writes_are_refused(value):
    refused(with_edit("cachegen-1", SECTION_DELTA_SIGMAS, "f", 4, value), "section 6: sigma of row 1 is")


@pytest.mark.parametrize("section_id", [SECTION_ANCHOR_STREAMS, SECTION_DELTA_STREAMS])
@pytest.mark.parametrize("lanes", [0, 2, 3, 64, 2**31])
def test_lane_counts_that_do_not_fit_are_refused(section_id, lanes):
    refused(with_edit("cachegen-1", section_id, "I", 0, lanes), f"codec cachegen: section {section_id}: ")


def test_words_taken_from_one_stream_for_another_are_refused():
    data = encoded("cachegen-1")
    body = section(data, SECTION_DELTA_STREAMS)
    words = struct.unpack_from("<I", body, 8)[0], struct.unpack_from("<I", body, 16)[0]
    struct.pack_into("<I", body, 8, words[0] - 1)
    struct.pack_into("<I", body, 16, words[1] + 1)

    refused(with_section(data, SECTION_DELTA_STREAMS, bytes(body)), "rANS stream of row 0|too few")


def test_published_scales_that_are_not_finite_in_the_chunks_dtype_are_refused():
    refused(with_edit("cachegen-repo-1", SECTION_TOKEN_SCALES, "H", 4, 0x7F80), "section 10: scale 2 is 0x7f80")
    half = with_field(encoded("cachegen-repo-1"), 33, "B", 2)
    body = section(half, SECTION_TOKEN_SCALES)
    struct.pack_into("<H", body, 4, 0x7C00)

    refused(with_section(half, SECTION_TOKEN_SCALES, bytes(body)), "section 10: scale [0-2] is 0x")


@pytest.mark.parametrize(("entry", "value"), [(0, 1), (5, 0), (31, 0xFFFF), (32, 0xFFFE)])
def test_tables_that_do_not_rise_from_end_to_end_are_refused(entry, value):
    at = 2 * (33 * 4 + entry)

    refused(with_edit("cachegen-repo-1", SECTION_TABLES, "H", at, value), "section 11: table of row 1, channel 1 ")


@pytest.mark.parametrize("length", [0, -1, -(2**31), 2 * 23 + 2, 2**31 - 1])
def test_bitstream_lengths_out_of_bounds_are_refused(length):
    refused(
        with_edit("cachegen-repo-1", SECTION_STREAM_LENGTHS, "i", 16, length),
        f"section 12: bitstream of run 0, row 1, channel 1 has {length} bytes, must be in 1..47",
    )


def test_bitstreams_one_byte_shorter_and_longer_are_refused():
    data = encoded("cachegen-repo-1")
    body = section(data, SECTION_STREAM_LENGTHS)
    lengths = struct.unpack_from("<ii", body, 0)
    struct.pack_into("<ii", body, 0, lengths[0] - 1, lengths[1] + 1)

    refused(with_section(data, SECTION_STREAM_LENGTHS, bytes(body)), "section 13: row 0: bitstream of run 0, channel 0")


def test_symbols_that_the_layer_does_not_have_are_refused():
    """At the default level the second layer's keys have 15 values, in a table with room for 32."""
    finest = encoded("cachegen-repo-0")

    refused(with_field(finest, 32, "B", 1), r"section 13: row [23]: symbol \d+, at most 14")


def test_one_token_chunk_with_delta_sections_is_refused():
    data = encoded("cachegen-1", ONE_TOKEN)
    profile = profile_of(ONE_TOKEN)

    refused(with_section(data, SECTION_DELTA_SIGMAS, bytes(8)), "must have", profile)


def test_hostile_scale_at_the_end_of_the_range_decodes_finite():
    kv = decode_chunk(with_edit("cachegen-1", SECTION_ANCHOR_SCALES, "H", 0, 0x7F7F), PROFILE).kv

    assert bool(torch.isfinite(kv).all())


@pytest.mark.parametrize("encoding", ENCODINGS, ids=str)
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_any_forged_section_ends_in_an_error_or_a_finite_tensor_of_the_right_shape(encoding, data):
    container = encoded(str(encoding))
    section_id = data.draw(st.sampled_from(list(unpack(container).sections)))
    body = section(container, section_id)
    edits = data.draw(st.lists(st.tuples(st.integers(0, len(body) - 1), st.integers(0, 255)), min_size=1, max_size=4))
    for at, value in edits:
        body[at] = value
    forged = with_section(container, section_id, bytes(body))
    try:
        kv = decode_chunk(forged, PROFILE).kv
    except FormatError:
        return

    assert kv.shape == KV.shape
    assert bool(torch.isfinite(kv).all())
