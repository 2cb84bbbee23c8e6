"""Chunks whose tokens are in a codebook: what it saves, what it leaves as it is, and what is refused."""

import struct

import numpy as np
import pytest
import telling_tokens
import torch
from checks import identity_of, section, with_section
from telling_tokens import SHAPE, context

from cachegen.codecs.equal_harm import forward
from cachegen.codecs.transform import (
    SECTION_CODEBOOK_ENTRIES,
    SECTION_EXACT_TOKENS,
    TransformCodec,
)
from cachegen.container import unpack
from cachegen.encoding import Encoding
from cachegen.errors import FormatError
from cachegen.kernels.uniform import GRID_STEPS, LEVEL_PLACES
from cachegen.kv import layout_of
from cachegen.pipeline import decode_chunk, encode_chunk

LEVELS = range(len(LEVEL_PLACES))
KV, TOKENS = context(200, seed=2)


@pytest.fixture(scope="module")
def profile():
    return telling_tokens.profile_with_codebook()


@pytest.fixture(scope="module")
def without(profile):
    """Neither a codebook nor references."""
    return telling_tokens.profile_without(profile)


@pytest.fixture(scope="module")
def alone(profile):
    """A codebook, and no references, which would save much of what it saves."""
    return telling_tokens.profile_without(profile, codebook=True)


def encode(kv, profile, level=3, first_token=1536, tokens_behind=None):
    identity = identity_of(profile, first_token=first_token)
    return encode_chunk(kv, Encoding("transform", level), identity, profile, tokens_behind)


def entries_of(data):
    return np.frombuffer(unpack(data).sections[SECTION_CODEBOOK_ENTRIES], "<u2").tolist()


def errors_of(kv, back, profile, first_token=1536):
    """Of each token and each half of the chunk, in units of the space of equal harm."""
    positions = first_token + np.arange(kv.shape[2])
    spaces = (forward(each, profile.tables.transform, positions) for each in (kv, back))
    return torch.stack([(a - b).square().mean(dim=1).sqrt() for a, b in zip(*spaces, strict=True)])


@pytest.mark.parametrize("first_token", [0, 1536])
@pytest.mark.parametrize("level", LEVELS)
def test_the_search_finds_the_very_tokens_of_the_context_exact_ones_included(profile, level, first_token):
    assert entries_of(encode(KV, profile, level, first_token)) == TOKENS


@pytest.mark.parametrize("level", LEVELS)
def test_what_follows_from_tokens_takes_far_fewer_bytes_and_errs_no_more(alone, without, level):
    sizes, errors = [], []
    for used in (alone, without):
        data = encode(KV, used, level)
        sizes.append(len(data))
        errors.append(float((decode_chunk(data, used).kv - KV).square().mean()))

    assert sizes[0] < 0.75 * sizes[1]
    # at fine levels all is rounded alike; at coarse ones, with less to code there is less to lose
    assert errors[0] < 1.15 * errors[1]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("tokens", [1, 2, 63, 200])
def test_tokens_err_by_about_their_step_whether_they_follow_or_not(profile, level, tokens):
    # the second half has nothing to do with any token
    kv = KV[:, :, :tokens].clone()
    kv[:, :, tokens // 2 :] = context(200, seed=3)[0][:, :, : tokens - tokens // 2].flip(0, 4)
    # near the end of a context, where steps differ and none is coarser than the level's
    back = decode_chunk(encode(kv, profile, level, tokens_behind=400), profile).kv

    # a step is lost by what is not coded and half of one by rounding, see representable
    assert float(errors_of(kv, back, profile).max()) <= 1.2 * GRID_STEPS[LEVEL_PLACES[level]] + 0.05


def test_a_token_that_calibration_never_saw_the_like_of_is_exact_and_those_beside_it_are_as_they_were(profile):
    kv = KV.clone()
    kv[1, 0, 50, 1, 3], kv[:, :, 90] = 3e38, -3e38
    data = encode(kv, profile)
    back = decode_chunk(data, profile).kv
    body = unpack(data).sections[SECTION_EXACT_TOKENS]

    assert struct.unpack_from("<3I", body) == (2, 50, 90)
    assert torch.equal(back[:, :, [50, 90]], kv[:, :, [50, 90]])
    others = [token for token in range(200) if token not in (50, 90)]
    assert [entries_of(data)[token] for token in others] == [TOKENS[token] for token in others]
    assert float(errors_of(kv[:, :, others], back[:, :, others], profile).max()) < 1.0


@pytest.mark.parametrize("value", [torch.finfo(torch.float32).max, torch.finfo(torch.float32).min])
def test_a_chunk_of_nothing_but_the_largest_values_comes_back(profile, value):
    kv = torch.full(SHAPE.chunk_shape(9), value)

    assert torch.equal(decode_chunk(encode(kv, profile), profile).kv, kv)


@pytest.mark.parametrize("tokens", [1, 9, 63])
def test_bytes_and_bits_are_the_same_on_every_backend(profile, tokens):
    kv = KV[:, :, :tokens]
    reference, numba = TransformCodec("reference"), TransformCodec("numba")
    sections = reference.encode(kv, 1, profile.tables, 2)

    assert sections == numba.encode(kv, 1, profile.tables, 2)
    views = {key: memoryview(body) for key, body in sections.items()}
    decoded = [codec.decode(views, layout_of(kv), 1, profile.tables, 2) for codec in (reference, numba)]
    assert torch.equal(*decoded)


def test_a_callers_autocast_changes_neither_bytes_nor_tensor(profile):
    data = encode(KV, profile)
    plain = decode_chunk(data, profile).kv
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert encode(KV, profile) == data
        assert torch.equal(decode_chunk(data, profile).kv, plain)


def test_entries_stand_in_a_section_only_where_there_are_a_codebook_and_something_to_code(profile, without):
    assert SECTION_CODEBOOK_ENTRIES in unpack(encode(KV, profile)).sections
    assert SECTION_CODEBOOK_ENTRIES not in unpack(encode(KV, without)).sections
    assert list(unpack(encode(KV[:, :, :4], profile, first_token=0)).sections) == [SECTION_EXACT_TOKENS]


def test_a_missing_section_and_one_too_many_are_refused(profile, without):
    entries = bytes(section(encode(KV, profile), SECTION_CODEBOOK_ENTRIES))
    for data, used in (
        (with_section(encode(KV, profile), SECTION_CODEBOOK_ENTRIES, None), profile),
        (with_section(encode(KV, without), SECTION_CODEBOOK_ENTRIES, entries), without),
        (with_section(encode(KV[:, :, :4], profile, first_token=0), SECTION_CODEBOOK_ENTRIES, bytes(8)), profile),
    ):
        with pytest.raises(FormatError, match=r"has sections .* must have"):
            decode_chunk(data, used)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda body: body[:6] + struct.pack("<H", 300) + body[8:], "token 3 has entry 300 of 300"),
        (lambda body: body[:-2] + b"\xff\xff", "token 199 has entry 65535 of 300"),
        (lambda body: body[:-2], "398 bytes for 200 tokens of 2 bytes"),
        (lambda body: b"", "0 bytes for 200 tokens"),
    ],
)
def test_entries_that_no_encoder_writes_are_refused_by_their_section(profile, edit, message):
    data = encode(KV, profile)
    forged = with_section(data, SECTION_CODEBOOK_ENTRIES, edit(bytes(section(data, SECTION_CODEBOOK_ENTRIES))))
    with pytest.raises(FormatError, match=f"codec transform: section 15: {message}"):
        decode_chunk(forged, profile)


def test_an_exact_token_beyond_the_codebook_is_refused_too(profile):
    data = encode(KV, profile, first_token=0)
    body = section(data, SECTION_CODEBOOK_ENTRIES)
    struct.pack_into("<H", body, 0, 300)
    with pytest.raises(FormatError, match="section 15: token 0 has entry 300"):
        decode_chunk(with_section(data, SECTION_CODEBOOK_ENTRIES, bytes(body)), profile)


def test_other_entries_than_the_encoders_give_another_tensor(profile):
    data = encode(KV, profile)
    body = section(data, SECTION_CODEBOOK_ENTRIES)
    body[20:22] = struct.pack("<H", (TOKENS[10] + 1) % 300)
    back = decode_chunk(with_section(data, SECTION_CODEBOOK_ENTRIES, bytes(body)), profile).kv
    changed = (back - decode_chunk(data, profile).kv).abs().amax(dim=(0, 1, 3, 4))

    # the token itself, and the one behind it
    assert changed.nonzero().flatten().tolist() == [10, 11]
