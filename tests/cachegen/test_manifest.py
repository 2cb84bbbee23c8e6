"""A manifest survives JSON exactly, and every way it could lie is refused with the field's name."""

import dataclasses
import json

import pytest

from cachegen.chunking import chunk_keys
from cachegen.errors import CachegenError, FormatError, InvalidInputError, MismatchError, VersionError
from cachegen.manifest import (
    MAX_MANIFEST_BYTES,
    Manifest,
    ManifestChunk,
    check_tokens,
    chunk_name,
    manifest_name,
    pack_manifest,
    tokens_name,
    unpack_manifest,
)

MODEL = bytes(range(16))
PROFILE = bytes(range(100, 132))
TOKENS = list(range(1000, 1025))


def make_manifest(token_ids=TOKENS, chunk_tokens=10) -> Manifest:
    keys = chunk_keys(token_ids, chunk_tokens, MODEL, PROFILE)
    chunks = tuple(
        ManifestChunk(
            key=key,
            first_token=index * chunk_tokens,
            num_tokens=min(chunk_tokens, len(token_ids) - index * chunk_tokens),
            encodings={"cachegen-0": 900 + index, "cachegen-1": 500 + index},
        )
        for index, key in enumerate(keys)
    )
    return Manifest(
        context_key=keys[-1],
        model_fingerprint=MODEL,
        profile_hash=PROFILE,
        num_tokens=len(token_ids),
        chunk_tokens=chunk_tokens,
        num_layers=30,
        num_kv_heads=3,
        head_dim=64,
        dtype="bfloat16",
        chunks=chunks,
    )


def edited(path: list, value: object) -> bytes:
    """Return a good manifest's JSON with one value replaced, or removed when it is ``...``."""
    document = json.loads(pack_manifest(make_manifest()))
    place = document
    for step in path[:-1]:
        place = place[step]
    if value is ...:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return json.dumps(document).encode()


def test_manifest_survives_packing_with_its_encodings_in_order():
    manifest = make_manifest()

    again = unpack_manifest(pack_manifest(manifest))

    assert again == manifest
    assert list(again.chunks[2].encodings) == ["cachegen-0", "cachegen-1"]
    assert again.chunks[2].num_tokens == 5


@pytest.mark.parametrize("schema", [0, 2, "1", 1.0, True, None, ...], ids=repr)
def test_unknown_schema_is_a_version_error(schema):
    with pytest.raises(VersionError, match="schema"):
        unpack_manifest(edited(["schema"], schema))


LIES = {
    "missing field": (["dtype"], ..., "dtype"),
    "unknown field": (["comment"], "hello", "comment"),
    "missing chunk field": (["chunks", 1, "first_token"], ..., r"chunks\[1\].*first_token"),
    "unknown chunk field": (["chunks", 1, "codec"], "x", r"chunks\[1\].*codec"),
    "upper-case hex": (["context_key"], "AB" * 32, "context_key.*AB"),
    "odd hex": (["profile_hash"], "abc", "profile_hash.*abc"),
    "hex with a trailing newline": (["profile_hash"], "ab" * 32 + "\n", "profile_hash"),
    "short hash": (["model_fingerprint"], "ab" * 15, "model_fingerprint.*16 bytes, not 15"),
    "hash as a number": (["profile_hash"], 5, "profile_hash.*5"),
    "key of other tokens": (["context_key"], "ab" * 32, "context_key.*last chunk"),
    "chunk key not hex": (["chunks", 0, "key"], "zz" * 32, r"chunks\[0\].key.*zz"),
    "no tokens": (["num_tokens"], 0, "num_tokens.*0"),
    "true as a number": (["num_layers"], True, "num_layers.*True"),
    "fraction": (["head_dim"], 64.0, r"head_dim.*64\.0"),
    "number as text": (["num_kv_heads"], "3", "num_kv_heads.*'3'"),
    "no end of tokens": (["num_tokens"], 2**24 + 1, "num_tokens.*16777217"),
    "more tokens than chunks": (["num_tokens"], 2**24, "chunks: 3 listed"),
    "chunks of one token": (["chunk_tokens"], 1, "chunks: 3 listed.*make 25"),
    "no chunks": (["chunks"], [], "chunks: 0 listed"),
    "chunks as an object": (["chunks"], {}, "chunks must be a list"),
    "chunk as a number": (["chunks", 1], 7, r"chunks\[1\] must be an object"),
    "gap between chunks": (["chunks", 1, "first_token"], 11, r"chunks\[1\].first_token must be 10, not 11"),
    "overlong tail": (["chunks", 2, "num_tokens"], 6, r"chunks\[2\].num_tokens must be 5, not 6"),
    "negative size": (["chunks", 0, "encodings", "cachegen-0"], -1, r"chunks\[0\].encodings.cachegen-0.*-1"),
    "monstrous size": (
        ["chunks", 0, "encodings", "cachegen-0"],
        2**41,
        r"encodings.cachegen-0.*2199023255552",
    ),
    "encodings as a list": (["chunks", 0, "encodings"], ["raw"], r"chunks\[0\].encodings must be an object"),
    "encoding that climbs": (["chunks", 0, "encodings"], {"../raw": 1}, r"chunks\[0\].encodings.*\.\./raw"),
    "dtype as code": (["dtype"], "__import__('os')", "dtype.*__import__"),
}


@pytest.mark.parametrize(("path", "value", "message"), LIES.values(), ids=LIES.keys())
def test_lie_is_refused_with_the_name_of_its_field(path, value, message):
    with pytest.raises(FormatError, match=message):
        unpack_manifest(edited(path, value))


def test_duplicate_keys_are_refused():
    chunk_key = make_manifest().chunks[0].key.hex()

    with pytest.raises(FormatError, match=rf"chunks\[1\].key: {chunk_key} is listed twice"):
        unpack_manifest(edited(["chunks", 1, "key"], chunk_key))


def test_field_that_stands_twice_is_refused():
    data = pack_manifest(make_manifest()).replace(b'{"schema":1,', b'{"schema":1,"num_tokens":25,')

    with pytest.raises(FormatError, match="'num_tokens' stands twice"):
        unpack_manifest(data)


@pytest.mark.parametrize(
    "data",
    [b"", b"[]", b"1", b"null", b"{", b"\xff\xfe", b"[" * 100_000, b'{"schema": NaN}', b"9" * 10_000],
    ids=["empty", "list", "number", "null", "open", "not UTF-8", "deep", "NaN", "long number"],
)
def test_bytes_that_are_no_manifest_are_refused(data):
    with pytest.raises(FormatError, match="manifest"):
        unpack_manifest(data)


@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_any_depth_of_nesting_is_refused_also_where_it_could_just_be_parsed(opening):
    closing = "]" if opening == "[" else "}"
    text = edited(["dtype"], "@").decode()
    for depth in (1, 10, *range(300, 1050)):
        with pytest.raises(FormatError, match="manifest"):
            unpack_manifest(text.replace('"@"', opening * depth + "1" + closing * depth).encode())


def test_oversized_manifest_is_refused_unread():
    with pytest.raises(FormatError, match=f"limit is {MAX_MANIFEST_BYTES}"):
        unpack_manifest(b" " * (MAX_MANIFEST_BYTES + 1))


def test_truncated_manifest_is_refused_at_every_length():
    data = pack_manifest(make_manifest())

    for length in range(len(data)):
        with pytest.raises(CachegenError):
            unpack_manifest(data[:length])


def test_manifest_made_by_hand_is_checked_too():
    manifest = make_manifest()

    with pytest.raises(InvalidInputError, match="num_layers"):
        dataclasses.replace(manifest, num_layers=0)
    with pytest.raises(InvalidInputError, match="chunks: 2 listed"):
        dataclasses.replace(manifest, chunks=manifest.chunks[1:])


def test_own_tokens_pass_and_others_are_named():
    manifest = make_manifest()

    check_tokens(manifest, TOKENS)
    with pytest.raises(MismatchError, match="24 tokens, but the manifest is of 25"):
        check_tokens(manifest, TOKENS[:-1])
    with pytest.raises(MismatchError, match="chunk 1"):
        check_tokens(manifest, [*TOKENS[:15], 7, *TOKENS[16:]])


def test_object_names_carry_the_whole_key():
    key = bytes([0xAB]) + bytes(31)

    assert chunk_name(key, "cachegen-2") == f"chunks/ab/{key.hex()}/cachegen-2"
    assert manifest_name(key) == f"manifests/ab/{key.hex()}"
    assert tokens_name(key) == f"tokens/ab/{key.hex()}"


@pytest.mark.parametrize("encoding", ["", "..", "a/b", "raw\n", "Raw", "x" * 40])
def test_chunk_name_refuses_encodings_that_are_no_names(encoding):
    with pytest.raises(InvalidInputError, match="encoding"):
        chunk_name(bytes(32), encoding)
