"""The container of one encoded chunk: the only place that trusts bytes (see docs/format.md)."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import xxhash

from cachegen.chunking import KEY_BYTES, MODEL_FINGERPRINT_BYTES, PROFILE_HASH_BYTES
from cachegen.encoding import Encoding
from cachegen.errors import ChecksumError, FormatError, InvalidInputError, VersionError
from cachegen.kv import KV_DTYPES, MAX_CHUNK_ELEMENTS, ChunkLayout, KVDType, KVShape

MAGIC = b"\x89KVC\r\n\x1a\n"
VERSION = 1
MAX_SECTIONS = 16
NO_LEVEL = 0xFF
# No codec writes as much: a symbol takes a word of 2 bytes and an escape of 5, an element of raw 4.
MAX_CONTAINER_BYTES = 8 * MAX_CHUNK_ELEMENTS

# magic, version, flags, header bytes | codec, level, dtype, sections | layers, KV heads, head dim, tokens |
# chunk index, first token | model fingerprint, profile hash, chunk key
_FIXED = struct.Struct("<8sHHI 16sBBH IIII IQ 16s32s32s")
# id, reserved, offset, length, xxh3_64
_ENTRY = struct.Struct("<IIQQQ")
_CHECKSUM = struct.Struct("<Q")


class HeaderFields(NamedTuple):
    """The fixed fields of a header as they stand, whatever they say."""

    magic: bytes
    version: int
    flags: int
    header_bytes: int
    codec: bytes
    level: int
    dtype: int
    num_sections: int
    num_layers: int
    num_kv_heads: int
    head_dim: int
    num_tokens: int
    chunk_index: int
    first_token: int
    model_fingerprint: bytes
    profile_hash: bytes
    chunk_key: bytes


class SectionEntry(NamedTuple):
    """One entry of the section table as it stands."""

    id: int
    reserved: int
    offset: int
    length: int
    checksum: int


@dataclass(frozen=True)
class ChunkIdentity:
    """Which chunk of which context of which model this is; recorded in and checked against its container.

    Raises
    ------
    InvalidInputError
        A field has the wrong length or is out of range.
    """

    model_fingerprint: bytes
    profile_hash: bytes
    chunk_key: bytes
    chunk_index: int
    first_token: int

    def __post_init__(self) -> None:
        lengths = {
            "model_fingerprint": MODEL_FINGERPRINT_BYTES,
            "profile_hash": PROFILE_HASH_BYTES,
            "chunk_key": KEY_BYTES,
        }
        for field, length in lengths.items():
            if len(getattr(self, field)) != length:
                raise InvalidInputError(f"{field} has {len(getattr(self, field))} bytes, must have {length}")
        for field, bits in {"chunk_index": 32, "first_token": 63}.items():
            if not 0 <= getattr(self, field) < 1 << bits:
                raise InvalidInputError(f"{field} is {getattr(self, field)}, must be in 0..2**{bits}-1")


@dataclass(frozen=True)
class Container:
    """A chunk as read: its header and its sections by id, each a view into the data it came from."""

    encoding: Encoding
    layout: ChunkLayout
    identity: ChunkIdentity
    sections: dict[int, memoryview]


def pack(
    encoding: Encoding,
    layout: ChunkLayout,
    identity: ChunkIdentity,
    sections: Mapping[int, bytes],
) -> bytes:
    """Container bytes of a chunk; sections stand in the order of the mapping."""
    header_bytes = _FIXED.size + _ENTRY.size * len(sections) + _CHECKSUM.size
    header = bytearray(
        _FIXED.pack(
            MAGIC,
            VERSION,
            0,
            header_bytes,
            encoding.codec.encode("ascii"),
            NO_LEVEL if encoding.level is None else encoding.level,
            layout.dtype.code,
            len(sections),
            layout.shape.num_layers,
            layout.shape.num_kv_heads,
            layout.shape.head_dim,
            layout.num_tokens,
            identity.chunk_index,
            identity.first_token,
            identity.model_fingerprint,
            identity.profile_hash,
            identity.chunk_key,
        )
    )
    offset = header_bytes
    for section_id, body in sections.items():
        header += _ENTRY.pack(section_id, 0, offset, len(body), xxhash.xxh3_64_intdigest(body))
        offset += len(body)
    header += _CHECKSUM.pack(xxhash.xxh3_64_intdigest(bytes(header)))
    return b"".join((header, *sections.values()))


def unpack(data: bytes | memoryview) -> Container:
    """Read and check a container; every later stage may rely on what this returns.

    Raises
    ------
    VersionError
        A format version this release cannot read.
    ChecksumError
        Header or section bytes do not match their checksum.
    FormatError
        Anything else that docs/format.md forbids; the text names the field or section and the offset.
    """
    view = memoryview(data).cast("B")
    fields = check_header(view)
    encoding, layout, identity = read_meaning(fields)
    sections: dict[int, memoryview] = {}
    expected = fields.header_bytes
    for entry in section_entries(view, fields.num_sections):
        if entry.id in sections:
            raise FormatError(f"section {entry.id} is listed twice")
        sections[entry.id] = check_section(view, entry, expected)
        expected += entry.length
    check_end(view, expected)
    return Container(encoding, layout, identity, sections)


def header_fields(view: memoryview) -> HeaderFields:
    """Fixed fields of a header; FormatError if there are not as many bytes."""
    if len(view) < _FIXED.size:
        raise FormatError(f"container has {len(view)} bytes, its header alone has at least {_FIXED.size}")
    return HeaderFields(*_FIXED.unpack_from(view))


def section_entries(view: memoryview, num_sections: int) -> list[SectionEntry]:
    """Entries of the section table, as many as there are bytes for."""
    room = (len(view) - _FIXED.size) // _ENTRY.size
    offsets = (_FIXED.size + i * _ENTRY.size for i in range(min(num_sections, room)))
    return [SectionEntry(*_ENTRY.unpack_from(view, offset)) for offset in offsets]


def check_header(view: memoryview) -> HeaderFields:
    """Check lengths, magic, version and checksum of the header; its fields' values are :func:`read_meaning`'s."""
    fields = header_fields(view)
    if fields.magic != MAGIC:
        raise FormatError(f"container magic at offset 0 is {fields.magic.hex()}, must be {MAGIC.hex()}")
    if fields.version != VERSION:
        raise VersionError(f"container version at offset 8 is {fields.version}, this release reads {VERSION}")
    if fields.num_sections > MAX_SECTIONS:
        raise FormatError(f"container has {fields.num_sections} sections, at most {MAX_SECTIONS}")
    implied = _FIXED.size + _ENTRY.size * fields.num_sections + _CHECKSUM.size
    if fields.header_bytes != implied:
        raise FormatError(f"container header length at offset 12 is {fields.header_bytes}, must be {implied}")
    if len(view) < implied:
        raise FormatError(f"container has {len(view)} bytes, its header has {implied}")
    end = implied - _CHECKSUM.size
    (stated,) = _CHECKSUM.unpack_from(view, end)
    actual = xxhash.xxh3_64_intdigest(view[:end])
    if stated != actual:
        raise ChecksumError(f"container header: checksum {actual:016x}, header says {stated:016x}")
    return fields


def read_meaning(fields: HeaderFields) -> tuple[Encoding, ChunkLayout, ChunkIdentity]:
    """What the fields say; FormatError names the first that says nothing this release knows."""
    if fields.flags != 0:
        raise FormatError(f"container flags are {fields.flags:#06x}, this version defines none")
    try:
        encoding = Encoding(_codec_of(fields.codec), None if fields.level == NO_LEVEL else fields.level)
        shape = KVShape(fields.num_layers, fields.num_kv_heads, fields.head_dim)
        layout = ChunkLayout(shape, fields.num_tokens, _dtype_of(fields.dtype))
        identity = ChunkIdentity(
            fields.model_fingerprint, fields.profile_hash, fields.chunk_key, fields.chunk_index, fields.first_token
        )
    except InvalidInputError as error:
        raise FormatError(f"container header: {error}") from error
    return encoding, layout, identity


def check_section(view: memoryview, entry: SectionEntry, expected: int) -> memoryview:
    """Bytes of a section that must start at offset ``expected``, once entry and checksum are found right."""
    if entry.reserved != 0:
        raise FormatError(f"section {entry.id}: reserved field is {entry.reserved}, must be 0")
    if entry.offset != expected:
        raise FormatError(f"section {entry.id} starts at offset {entry.offset}, must start at {expected}")
    if entry.length > len(view) - entry.offset:
        raise FormatError(f"section {entry.id}: {entry.length} bytes at offset {entry.offset} pass the end {len(view)}")
    body = view[entry.offset : entry.offset + entry.length]
    actual = xxhash.xxh3_64_intdigest(body)
    if entry.checksum != actual:
        raise ChecksumError(
            f"section {entry.id} at offset {entry.offset}: checksum {actual:016x}, header says {entry.checksum:016x}"
        )
    return body


def check_end(view: memoryview, expected: int) -> None:
    """Refuse bytes behind the last section."""
    if expected != len(view):
        raise FormatError(f"container has {len(view)} bytes, its sections end at offset {expected}")


def _codec_of(field: bytes) -> str:
    name = field.rstrip(b"\0")
    if not name.isascii() or b"\0" in name:
        raise FormatError(f"container codec name at offset 16 is not NUL-padded ASCII: {field.hex()}")
    return name.decode("ascii")


def _dtype_of(code: int) -> KVDType:
    for entry in KV_DTYPES:
        if entry.code == code:
            return entry
    raise FormatError(f"container dtype code at offset 33 is {code}, unknown")
