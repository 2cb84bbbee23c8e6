"""The container of one encoded chunk: the only place that trusts bytes (see docs/format.md)."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass

import xxhash

from cachegen.chunking import KEY_BYTES, MODEL_FINGERPRINT_BYTES, PROFILE_HASH_BYTES
from cachegen.encoding import Encoding
from cachegen.errors import ChecksumError, FormatError, InvalidInputError, VersionError
from cachegen.kv import KV_DTYPES, ChunkLayout, KVDType, KVShape

MAGIC = b"\x89KVC\r\n\x1a\n"
VERSION = 1
MAX_SECTIONS = 16
NO_LEVEL = 0xFF

# magic, version, flags, header bytes | codec, level, dtype, sections | layers, KV heads, head dim, tokens |
# chunk index, first token | model fingerprint, profile hash, chunk key
_FIXED = struct.Struct("<8sHHI 16sBBH IIII IQ 16s32s32s")
# id, reserved, offset, length, xxh3_64
_ENTRY = struct.Struct("<IIQQQ")
_CHECKSUM = struct.Struct("<Q")


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
    header_bytes, num_sections = _check_header_bytes(view)
    fields = _FIXED.unpack_from(view)
    codec_name, level, dtype_code = fields[4:7]
    if fields[2] != 0:
        raise FormatError(f"container flags are {fields[2]:#06x}, this version defines none")
    try:
        encoding = Encoding(_codec_of(codec_name), None if level == NO_LEVEL else level)
        layout = ChunkLayout(KVShape(*fields[8:11]), fields[11], _dtype_of(dtype_code))
        identity = ChunkIdentity(fields[14], fields[15], fields[16], fields[12], fields[13])
    except InvalidInputError as error:
        raise FormatError(f"container header: {error}") from error
    return Container(encoding, layout, identity, _read_sections(view, header_bytes, num_sections))


def _check_header_bytes(view: memoryview) -> tuple[int, int]:
    """Lengths, magic, version and checksum of the header; returns its length and section count."""
    if len(view) < _FIXED.size:
        raise FormatError(f"container has {len(view)} bytes, its header alone has at least {_FIXED.size}")
    magic, version, _, header_bytes, _, _, _, num_sections = _FIXED.unpack_from(view)[:8]
    if magic != MAGIC:
        raise FormatError(f"container magic at offset 0 is {magic.hex()}, must be {MAGIC.hex()}")
    if version != VERSION:
        raise VersionError(f"container version at offset 8 is {version}, this release reads {VERSION}")
    if num_sections > MAX_SECTIONS:
        raise FormatError(f"container has {num_sections} sections, at most {MAX_SECTIONS}")
    implied = _FIXED.size + _ENTRY.size * num_sections + _CHECKSUM.size
    if header_bytes != implied:
        raise FormatError(f"container header length at offset 12 is {header_bytes}, must be {implied}")
    if len(view) < header_bytes:
        raise FormatError(f"container has {len(view)} bytes, its header has {header_bytes}")
    end = header_bytes - _CHECKSUM.size
    (stated,) = _CHECKSUM.unpack_from(view, end)
    actual = xxhash.xxh3_64_intdigest(view[:end])
    if stated != actual:
        raise ChecksumError(f"container header: checksum {actual:016x}, header says {stated:016x}")
    return header_bytes, num_sections


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


def _read_sections(view: memoryview, start: int, num_sections: int) -> dict[int, memoryview]:
    sections: dict[int, memoryview] = {}
    expected = start
    for i in range(num_sections):
        section_id, reserved, offset, length, stated = _ENTRY.unpack_from(view, _FIXED.size + i * _ENTRY.size)
        if section_id in sections:
            raise FormatError(f"section {section_id} is listed twice")
        if reserved != 0:
            raise FormatError(f"section {section_id}: reserved field is {reserved}, must be 0")
        if offset != expected:
            raise FormatError(f"section {section_id} starts at offset {offset}, must start at {expected}")
        if length > len(view) - offset:
            raise FormatError(f"section {section_id}: {length} bytes at offset {offset} pass the end {len(view)}")
        body = view[offset : offset + length]
        actual = xxhash.xxh3_64_intdigest(body)
        if stated != actual:
            raise ChecksumError(
                f"section {section_id} at offset {offset}: checksum {actual:016x}, header says {stated:016x}"
            )
        sections[section_id] = body
        expected = offset + length
    if expected != len(view):
        raise FormatError(f"container has {len(view)} bytes, its sections end at offset {expected}")
    return sections
