"""Chunk spans cover the context exactly; keys change with all that the KV depends on and nothing else."""

import hashlib
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cachegen.chunking import chunk_keys, chunk_spans, pack_tokens, unpack_tokens
from cachegen.errors import FormatError, InvalidInputError

MODEL = bytes(range(16))
PROFILE = bytes(range(100, 132))
TOKENS = [5, 0, 7, 2**32 - 1, 9, 11, 13]


@settings(deadline=None)
@given(num_tokens=st.integers(1, 5000), chunk_tokens=st.integers(1, 6000))
def test_spans_cover_every_token_once_and_only_the_last_may_be_short(num_tokens, chunk_tokens):
    spans = chunk_spans(num_tokens, chunk_tokens)

    assert [token for first, end in spans for token in range(first, end)] == list(range(num_tokens))
    assert {end - first for first, end in spans[:-1]} <= {chunk_tokens}
    assert 1 <= spans[-1][1] - spans[-1][0] <= chunk_tokens


@pytest.mark.parametrize(("num_tokens", "chunk_tokens"), [(0, 10), (-1, 10), (2**24 + 1, 10), (10, 0), (10, -3)])
def test_spans_refuse_empty_or_boundless_contexts_and_empty_chunks(num_tokens, chunk_tokens):
    with pytest.raises(InvalidInputError, match="at least 1"):
        chunk_spans(num_tokens, chunk_tokens)


def test_keys_follow_the_documented_preimage():
    first = hashlib.sha256(
        hashlib.sha256(b"cachegen chunk key 1\x00" + MODEL + PROFILE).digest() + struct.pack("<5I", *TOKENS[:5])
    ).digest()
    second = hashlib.sha256(first + struct.pack("<2I", *TOKENS[5:])).digest()

    assert chunk_keys(TOKENS, 5, MODEL, PROFILE) == [first, second]


def test_equal_prefixes_share_keys_up_to_the_first_difference():
    other = [*TOKENS[:4], 999, *TOKENS[5:]]

    ours, theirs = (chunk_keys(tokens, 2, MODEL, PROFILE) for tokens in (TOKENS, other))

    assert ours[:2] == theirs[:2]
    assert not set(ours[2:]) & set(theirs[2:])


def test_keys_depend_on_the_boundaries_before_them():
    assert chunk_keys(TOKENS, 3, MODEL, PROFILE)[-1] != chunk_keys(TOKENS, 4, MODEL, PROFILE)[-1]


@pytest.mark.parametrize(("model", "profile"), [(bytes(16), PROFILE), (MODEL, bytes(32))], ids=["model", "profile"])
def test_keys_of_another_model_or_profile_have_nothing_in_common(model, profile):
    assert not set(chunk_keys(TOKENS, 2, MODEL, PROFILE)) & set(chunk_keys(TOKENS, 2, model, profile))


def test_keys_refuse_empty_contexts_and_hashes_of_another_length():
    with pytest.raises(InvalidInputError, match="num_tokens"):
        chunk_keys([], 2, MODEL, PROFILE)
    with pytest.raises(InvalidInputError, match="model_fingerprint must be 16 bytes, not 15"):
        chunk_keys(TOKENS, 2, MODEL[1:], PROFILE)
    with pytest.raises(InvalidInputError, match="profile_hash must be 32 bytes, not 16"):
        chunk_keys(TOKENS, 2, MODEL, MODEL)


@settings(deadline=None)
@given(st.lists(st.integers(0, 2**32 - 1)))
def test_tokens_survive_packing(token_ids):
    assert unpack_tokens(pack_tokens(token_ids), len(token_ids)) == token_ids


def test_tokens_are_little_endian_whatever_array_they_come_from():
    assert pack_tokens(np.array([1, 258], dtype=">i8")) == b"\x01\x00\x00\x00\x02\x01\x00\x00"


@pytest.mark.parametrize("bad", [-1, 2**32, 2**70], ids=str)
def test_packing_refuses_ids_that_do_not_fit(bad):
    with pytest.raises(InvalidInputError, match=r"4294967295"):
        pack_tokens([1, bad, 2])


@pytest.mark.parametrize("bad", [[1.5], [[1, 2], [3, 4]], ["7"], [True]], ids=str)
def test_packing_refuses_what_is_not_a_row_of_integers(bad):
    with pytest.raises(InvalidInputError, match="one row of integers"):
        pack_tokens(bad)


def test_unpacking_refuses_another_length():
    with pytest.raises(FormatError, match="11 bytes, but 3 tokens take 12"):
        unpack_tokens(bytes(11), 3)
