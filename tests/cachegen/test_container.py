import struct

import pytest
from checks import (
    IDENTITY,
    SECTION_ENTRY_BYTES,
    SECTION_TABLE_AT,
    identity_of,
    make_chunk,
    profile_of,
    reseal,
    with_field,
)

from cachegen.container import MAGIC, ChunkIdentity, pack, unpack
from cachegen.encoding import ENCODINGS, Encoding
from cachegen.errors import ChecksumError, FormatError, InvalidInputError, VersionError
from cachegen.kv import layout_of
from cachegen.pipeline import decode_chunk, encode_chunk

KV = make_chunk(layers=2, tokens=12, heads=1, dim=3)
PROFILE = profile_of(KV)
SECTIONS = {7: b"seven", 2: b"", 9: bytes(range(40))}


def packed():
    return pack(Encoding("cachegen", 1), layout_of(KV), IDENTITY, SECTIONS)


def encoded(encoding):
    return encode_chunk(KV, encoding, identity_of(PROFILE), PROFILE)


def test_unpack_returns_what_pack_was_given():
    container = unpack(packed())

    assert container.encoding == Encoding("cachegen", 1)
    assert container.layout == layout_of(KV)
    assert container.identity == IDENTITY
    assert list(container.sections.items()) == list(SECTIONS.items())


def test_sections_are_views_into_the_data():
    data = packed()

    assert all(view.obj is data for view in unpack(data).sections.values())


def test_header_fields_stand_where_the_format_says():
    data = packed()

    assert data[:8] == MAGIC == bytes.fromhex("894b56430d0a1a0a")
    assert struct.unpack_from("<HHI", data, 8) == (1, 0, SECTION_TABLE_AT + 3 * SECTION_ENTRY_BYTES + 8)
    assert data[16:36] == b"cachegen" + bytes(8) + bytes([1, 3, 3, 0])
    assert struct.unpack_from("<4I", data, 36) == (2, 1, 3, 12)
    assert struct.unpack_from("<IQ", data, 52) == (3, 1536)
    assert data[64:144] == IDENTITY.model_fingerprint + IDENTITY.profile_hash + IDENTITY.chunk_key


@pytest.mark.parametrize("encoding", ENCODINGS, ids=str)
def test_every_flipped_bit_and_every_flipped_byte_is_refused(encoding):
    data = encoded(encoding)
    for at in range(len(data)):
        for mask in (*(1 << bit for bit in range(8)), 0xFF):
            changed = bytearray(data)
            changed[at] ^= mask
            with pytest.raises(FormatError):
                decode_chunk(bytes(changed), PROFILE)


@pytest.mark.parametrize("encoding", ENCODINGS, ids=str)
def test_every_truncation_is_refused(encoding):
    data = encoded(encoding)
    for length in range(len(data)):
        with pytest.raises(FormatError):
            decode_chunk(data[:length], PROFILE)


def test_bytes_after_the_last_section_are_refused():
    with pytest.raises(FormatError, match="sections end at offset"):
        unpack(packed() + b"\0")


def test_corruption_is_named_by_its_section_and_offset():
    data = bytearray(packed())
    data[-1] ^= 1

    with pytest.raises(ChecksumError, match=f"section 9 at offset {len(data) - 40}"):
        unpack(bytes(data))


@pytest.mark.parametrize("version", [0, 2, 65_535])
def test_other_versions_are_refused_as_such(version):
    with pytest.raises(VersionError, match=f"{version}, this release reads 1"):
        unpack(with_field(packed(), 8, "H", version))


@pytest.mark.parametrize(
    ("offset", "form", "value", "message"),
    [
        (0, "B", 0, "magic"),
        (10, "H", 1, "flags"),
        (12, "I", 0, "header length"),
        (12, "I", 2**32 - 1, "header length"),
        (16, "16s", b"gzip", "unknown codec 'gzip'"),
        (16, "16s", b"raw\0raw", "NUL-padded"),
        (16, "16s", b"\xff" * 16, "NUL-padded"),
        (16, "16s", b"", "unknown codec ''"),
        (32, "B", 5, "levels 0..4, got 5"),
        (32, "B", 255, "levels 0..4, got None"),
        (33, "B", 0, "dtype code"),
        (33, "B", 4, "dtype code"),
        (34, "H", 2, "header length"),
        (34, "H", 17, "17 sections"),
        (34, "H", 65_535, "65535 sections"),
        (36, "I", 0, "num_layers is 0"),
        (36, "I", 2**32 - 1, "num_layers"),
        (40, "I", 0, "num_kv_heads is 0"),
        (40, "I", 4097, "num_kv_heads"),
        (44, "I", 0, "head_dim is 0"),
        (44, "I", 2**31, "head_dim"),
        (48, "I", 0, "num_tokens is 0"),
        (48, "I", 2**20 + 1, "num_tokens"),
        (56, "Q", 2**63, "first_token"),
        (SECTION_TABLE_AT, "I", 2, "section 2 is listed twice"),
        (SECTION_TABLE_AT + 4, "I", 1, "reserved"),
        (SECTION_TABLE_AT + 8, "Q", 0, "must start at"),
        (SECTION_TABLE_AT + 8, "Q", 2**64 - 1, "must start at"),
        (SECTION_TABLE_AT + 16, "Q", 2**64 - 1, "pass the end"),
        (SECTION_TABLE_AT + 16, "Q", 4, "must start at"),
        (SECTION_TABLE_AT + 2 * SECTION_ENTRY_BYTES + 16, "Q", 39, "sections end at offset"),
    ],
)
def test_header_lies_with_right_checksums_are_refused_by_name(offset, form, value, message):
    with pytest.raises(FormatError, match=message):
        unpack(with_field(packed(), offset, form, value))


def test_shapes_beyond_the_limit_are_refused_before_anything_is_allocated():
    data = with_field(with_field(packed(), 36, "I", 4096), 40, "I", 4096)
    data = with_field(data, 44, "I", 16_384)

    with pytest.raises(FormatError, match="elements"):
        unpack(data)


def test_resealing_an_honest_container_changes_nothing():
    assert reseal(packed()) == packed()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("model_fingerprint", b"short"),
        ("profile_hash", bytes(33)),
        ("chunk_key", b""),
        ("chunk_index", -1),
        ("chunk_index", 2**32),
        ("first_token", 2**63),
    ],
)
def test_identities_that_no_header_can_hold_are_refused(field, value):
    with pytest.raises(InvalidInputError, match=field):
        ChunkIdentity(**(vars(IDENTITY) | {field: value}))
