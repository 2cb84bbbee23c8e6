"""The manifest of a stored context: which chunks it has, under which keys, in which encodings and sizes.

A manifest is published last, so whoever can read one can read everything it lists. It is stored as UTF-8 JSON
with a ``schema`` number and hashes in lower-case hex. Nothing in it is believed before it was checked.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cachegen.chunking import (
    KEY_BYTES,
    MAX_CONTEXT_TOKENS,
    MODEL_FINGERPRINT_BYTES,
    PROFILE_HASH_BYTES,
    TokenIds,
    check_hash,
    chunk_keys,
    chunk_spans,
)
from cachegen.errors import FormatError, InvalidInputError, MismatchError, VersionError
from cachegen.strict_json import parse_object, shown

MANIFEST_SCHEMA = 1
# A million tokens in chunks of 512 make a manifest of about one mebibyte.
MAX_MANIFEST_BYTES = 16 * 2**20
MAX_OBJECT_BYTES = 2**40

_CHUNKS = "chunks/"

_LIMITS = {
    "num_tokens": MAX_CONTEXT_TOKENS,
    "chunk_tokens": MAX_CONTEXT_TOKENS,
    "num_layers": 2**16 - 1,
    "num_kv_heads": 2**16 - 1,
    "head_dim": 2**16 - 1,
}
_HASH_BYTES = {
    "context_key": KEY_BYTES,
    "model_fingerprint": MODEL_FINGERPRINT_BYTES,
    "profile_hash": PROFILE_HASH_BYTES,
}
_FIELDS = {"schema", *_LIMITS, *_HASH_BYTES, "dtype", "chunks"}
_CHUNK_FIELDS = {"key", "first_token", "num_tokens", "encodings"}
# Names of encodings and of dtypes: one path segment, no dot, so they can stand in object names.
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")


@dataclass(frozen=True)
class ManifestChunk:
    """One chunk of a stored context.

    Parameters
    ----------
    key
        32 bytes, see ``cachegen.chunking``.
    first_token, num_tokens
        The chunk's span of the context.
    encodings
        Size in bytes of the chunk's object in each encoding that is stored, by the encoding's name.
    """

    key: bytes
    first_token: int
    num_tokens: int
    encodings: Mapping[str, int]


@dataclass(frozen=True)
class Manifest:
    """What is stored of one context; see the module's first lines.

    Raises
    ------
    InvalidInputError
        A value is out of range, or the chunks do not cover the context exactly; the text names the field.
    """

    context_key: bytes
    model_fingerprint: bytes
    profile_hash: bytes
    num_tokens: int
    chunk_tokens: int
    num_layers: int
    num_kv_heads: int
    head_dim: int
    dtype: str
    chunks: tuple[ManifestChunk, ...]

    def __post_init__(self) -> None:
        for field, length_bytes in _HASH_BYTES.items():
            check_hash(field, getattr(self, field), length_bytes)
        for field, largest in _LIMITS.items():
            _check_int(field, getattr(self, field), 1, largest)
        _check_name("dtype", self.dtype)
        self._check_chunks()

    def _check_chunks(self) -> None:
        # Counted before the spans are listed: a manifest that lies must not make us allocate for its lie.
        expected_chunks = -(-self.num_tokens // self.chunk_tokens)
        if len(self.chunks) != expected_chunks:
            raise InvalidInputError(
                f"chunks: {len(self.chunks)} listed, but {self.num_tokens} tokens "
                f"in chunks of {self.chunk_tokens} make {expected_chunks}"
            )
        keys: set[bytes] = set()
        spans = chunk_spans(self.num_tokens, self.chunk_tokens)
        for index, (chunk, (first, end)) in enumerate(zip(self.chunks, spans, strict=True)):
            field = f"chunks[{index}]"
            check_hash(f"{field}.key", chunk.key, KEY_BYTES)
            if chunk.key in keys:
                raise InvalidInputError(f"{field}.key: {chunk.key.hex()} is listed twice")
            keys.add(chunk.key)
            _check_int(f"{field}.first_token", chunk.first_token, first, first)
            _check_int(f"{field}.num_tokens", chunk.num_tokens, end - first, end - first)
            for encoding, size_bytes in chunk.encodings.items():
                _check_name(f"{field}.encodings", encoding)
                _check_int(f"{field}.encodings.{encoding}", size_bytes, 1, MAX_OBJECT_BYTES)
        if self.chunks[-1].key != self.context_key:
            raise InvalidInputError(
                f"context_key: {self.context_key.hex()} is not the key of the last chunk, {self.chunks[-1].key.hex()}"
            )


def pack_manifest(manifest: Manifest) -> bytes:
    """Return the manifest as JSON, the same bytes for equal manifests with equally ordered encodings."""
    document: dict[str, Any] = {"schema": MANIFEST_SCHEMA}
    document |= {field: getattr(manifest, field).hex() for field in _HASH_BYTES}
    document |= {field: getattr(manifest, field) for field in _LIMITS}
    document["dtype"] = manifest.dtype
    document["chunks"] = [
        {
            "key": chunk.key.hex(),
            "first_token": chunk.first_token,
            "num_tokens": chunk.num_tokens,
            "encodings": dict(chunk.encodings),
        }
        for chunk in manifest.chunks
    ]
    return json.dumps(document, separators=(",", ":")).encode()


def unpack_manifest(data: bytes) -> Manifest:
    """Parse and check what ``pack_manifest`` wrote.

    Raises
    ------
    VersionError
        The schema is not the one this release knows.
    FormatError
        Anything else that is not a manifest; the text names the field and the value.
    """
    document = _parse_object(data)
    schema = document.get("schema")
    if type(schema) is not int or schema != MANIFEST_SCHEMA:
        raise VersionError(f"manifest: schema {shown(schema)}, this release reads {MANIFEST_SCHEMA}")
    _check_fields("manifest", document, _FIELDS)
    chunks = document["chunks"]
    if not isinstance(chunks, list):
        raise FormatError(f"manifest: chunks must be a list, not {shown(chunks)}")
    try:
        return Manifest(
            context_key=_parse_hex("context_key", document["context_key"]),
            model_fingerprint=_parse_hex("model_fingerprint", document["model_fingerprint"]),
            profile_hash=_parse_hex("profile_hash", document["profile_hash"]),
            num_tokens=document["num_tokens"],
            chunk_tokens=document["chunk_tokens"],
            num_layers=document["num_layers"],
            num_kv_heads=document["num_kv_heads"],
            head_dim=document["head_dim"],
            dtype=document["dtype"],
            chunks=tuple(_parse_chunk(index, chunk) for index, chunk in enumerate(chunks)),
        )
    except InvalidInputError as error:
        raise FormatError(f"manifest: {error}") from error


def check_tokens(manifest: Manifest, token_ids: TokenIds) -> None:
    """Check that these are the very tokens whose KV the manifest lists.

    Raises
    ------
    MismatchError
        The number of tokens differs, or the key of a chunk does; the text names the first such chunk.
    """
    if len(token_ids) != manifest.num_tokens:
        raise MismatchError(f"{len(token_ids)} tokens, but the manifest is of {manifest.num_tokens}")
    keys = chunk_keys(token_ids, manifest.chunk_tokens, manifest.model_fingerprint, manifest.profile_hash)
    for index, (key, chunk) in enumerate(zip(keys, manifest.chunks, strict=True)):
        if key != chunk.key:
            raise MismatchError(
                f"chunk {index}: these tokens have key {key.hex()}, the manifest lists {chunk.key.hex()}"
            )


def chunk_name(key: bytes, encoding: str) -> str:
    """Return the name of the object that holds the chunk of ``key`` in ``encoding``, like ``cachegen-2``."""
    _check_name("encoding", encoding)
    return f"{_CHUNKS}{_spread(key)}/{encoding}"


def is_chunk_name(name: str) -> bool:
    """Whether an object's name is a chunk's, which has many bytes where all others have few."""
    return name.startswith(_CHUNKS)


def manifest_name(context_key: bytes) -> str:
    """Return the name of a context's manifest object."""
    return f"manifests/{_spread(context_key)}"


def tokens_name(context_key: bytes) -> str:
    """Return the name of the object that holds a context's token ids."""
    return f"tokens/{_spread(context_key)}"


def used_name(context_key: bytes) -> str:
    """Return the name of the object whose time says when a context was last used."""
    return f"used/{_spread(context_key)}"


def _spread(key: bytes) -> str:
    # 256 folders, so that no folder of a large file store grows without bound.
    check_hash("key", key, KEY_BYTES)
    return f"{key[:1].hex()}/{key.hex()}"


def _parse_object(data: bytes) -> dict[str, Any]:
    if len(data) > MAX_MANIFEST_BYTES:
        raise FormatError(f"manifest: {len(data)} bytes, the limit is {MAX_MANIFEST_BYTES}")
    try:
        return parse_object(data)
    except FormatError as error:
        raise FormatError(f"manifest: {error}") from error


def _parse_chunk(index: int, value: object) -> ManifestChunk:
    place = f"manifest: chunks[{index}]"
    if not isinstance(value, dict):
        raise FormatError(f"{place} must be an object, not {shown(value)}")
    _check_fields(place, value, _CHUNK_FIELDS)
    if not isinstance(value["encodings"], dict):
        raise FormatError(f"{place}.encodings must be an object, not {shown(value['encodings'])}")
    return ManifestChunk(
        key=_parse_hex(f"chunks[{index}].key", value["key"]),
        first_token=value["first_token"],
        num_tokens=value["num_tokens"],
        encodings=value["encodings"],
    )


def _parse_hex(field: str, value: object) -> bytes:
    if not isinstance(value, str) or not re.fullmatch(r"(?:[0-9a-f]{2})*", value):
        raise FormatError(f"manifest: {field} must be lower-case hex, not {shown(value)}")
    return bytes.fromhex(value)


def _check_fields(place: str, document: dict[str, Any], expected: set[str]) -> None:
    if missing := sorted(expected - document.keys()):
        raise FormatError(f"{place}: no field {missing[0]!r}")
    if unknown := sorted(document.keys() - expected):
        raise FormatError(f"{place}: unknown field {shown(unknown[0])}")


def _check_int(field: str, value: object, smallest: int, largest: int) -> None:
    # ``type`` and not ``isinstance``: JSON's true is an int to Python.
    if type(value) is not int or not smallest <= value <= largest:
        bounds = f"{smallest}" if smallest == largest else f"an integer from {smallest} to {largest}"
        raise InvalidInputError(f"{field} must be {bounds}, not {shown(value)}")


def _check_name(field: str, value: object) -> None:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise InvalidInputError(f"{field}: {shown(value)} is not a name of the form {_NAME.pattern}")
