"""Chunks whose tokens are predicted from earlier ones: the same tensors as without, and what is refused."""

import re
import struct
import time

import numpy as np
import pytest
import telling_tokens
import torch
from checks import identity_of, section, with_section
from hypothesis import given, settings
from hypothesis import strategies as st
from telling_tokens import context

from cachegen.cli import main
from cachegen.codecs.transform import (
    SECTION_CODEBOOK_ENTRIES,
    SECTION_EXACT_TOKENS,
    SECTION_REFERENCES,
    SECTION_TOKEN_STEPS,
    TransformCodec,
)
from cachegen.container import unpack
from cachegen.encoding import Encoding
from cachegen.errors import FormatError
from cachegen.kernels.uniform import LEVEL_PLACES
from cachegen.kv import layout_of
from cachegen.pipeline import decode_chunk, encode_chunk

LEVELS = range(len(LEVEL_PLACES))
KV = context(120, seed=2)[0].repeat(1, 1, 2, 1, 1)


@pytest.fixture(scope="module")
def profiles():
    """With a codebook and without, with references and without: bases are the same in each pair."""
    plain = telling_tokens.profile_with_codebook()
    return {
        (codebook, references): telling_tokens.profile_without(plain, codebook=codebook, references=references)
        for codebook in (True, False)
        for references in (True, False)
    }


@pytest.fixture(scope="module")
def profile(profiles):
    return profiles[True, True]


def encode(kv, profile, level=3, first_token=1536, tokens_behind=None):
    identity = identity_of(profile, first_token=first_token)
    return encode_chunk(kv, Encoding("transform", level), identity, profile, tokens_behind)


def with_exact_tokens(kv):
    """Some that no calibration text had the like of, in the middle."""
    kv = kv.clone()
    kv[1, 0, 50, 1, 3], kv[:, :, [90, 91]] = 3e38, -3e38
    return kv


@pytest.mark.parametrize("tokens_behind", [None, 0, 200])
@pytest.mark.parametrize("codebook", [True, False])
@pytest.mark.parametrize("level", LEVELS)
def test_a_tensor_is_the_same_with_references_and_without(profiles, level, codebook, tokens_behind):
    for kv, first_token in ((KV, 1536), (with_exact_tokens(KV), 2)):
        found = []
        for references in (True, False):
            used = profiles[codebook, references]
            data = encode(kv, used, level, first_token, tokens_behind)
            sections = unpack(data).sections
            assert (SECTION_REFERENCES in sections) == references
            found.append((decode_chunk(data, used).kv, bytes(sections[SECTION_EXACT_TOKENS])))
        assert torch.equal(found[0][0], found[1][0])
        assert found[0][1] == found[1][1]


@pytest.mark.parametrize("tokens", [1, 2, 3, 33])
def test_bytes_and_bits_are_the_same_on_every_backend(profile, tokens):
    kv = context(2, seed=2)[0].repeat(1, 1, 17, 1, 1)[:, :, :tokens]
    reference, numba = TransformCodec("reference"), TransformCodec("numba")
    for tokens_behind in (None, 200):
        sections = reference.encode(kv, 1, profile.tables, 3, tokens_behind)

        assert sections == numba.encode(kv, 1, profile.tables, 3, tokens_behind)
        views = {key: memoryview(body) for key, body in sections.items()}
        decoded = [codec.decode(views, layout_of(kv), 1, profile.tables, 3) for codec in (reference, numba)]
        assert torch.equal(*decoded)


def test_a_chunk_that_is_decoded_in_parts_is_what_it_is_at_once(profile, monkeypatch):
    data = encode(KV, profile, tokens_behind=100)
    expected = decode_chunk(data, profile).kv
    for memory in (0.05, 0.3, 5.0):
        monkeypatch.setattr("cachegen.codecs.transform.MEMORY", memory)
        torch.testing.assert_close(decode_chunk(data, profile).kv, expected, rtol=1e-5, atol=1e-5)


def test_references_stand_in_a_section_only_where_profile_and_chunk_have_them(profiles, profile):
    assert SECTION_REFERENCES in unpack(encode(KV, profile)).sections
    assert SECTION_REFERENCES not in unpack(encode(KV, profiles[True, False])).sections
    assert list(unpack(encode(KV[:, :, :4], profile, first_token=0)).sections) == [SECTION_EXACT_TOKENS]


def test_a_missing_section_and_one_too_many_are_refused(profiles, profile):
    references = bytes(section(encode(KV, profile), SECTION_REFERENCES))
    without = profiles[True, False]
    for data, used in (
        (with_section(encode(KV, profile), SECTION_REFERENCES, None), profile),
        (with_section(encode(KV, without), SECTION_REFERENCES, references), without),
        (with_section(encode(KV[:, :, :4], profile, first_token=0), SECTION_REFERENCES, bytes(20)), profile),
    ):
        with pytest.raises(FormatError, match=r"has sections .* must have"):
            decode_chunk(data, used)


def test_a_chunk_of_the_same_bases_without_references_is_not_taken_for_one_with_them(profiles, profile):
    data = encode(KV, profiles[True, False])
    with pytest.raises(Exception, match="profile"):
        decode_chunk(data, profile)


def choice_at(token):
    return 4 * 240 + token


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda body: body[:-1], "1199 bytes for 240 coded tokens and 1 units, must be 1200"),
        (lambda body: body + b"\1", "1201 bytes for 240 coded tokens"),
        (lambda body: b"", "0 bytes for 240 coded tokens"),
        (lambda body: body[:-1] + b"\x1b", "coded token 239 is predicted in a way that there is not"),
        (lambda body: body[: choice_at(0)] + b"\x0d" + body[choice_at(1) :], "coded token 0 refers to one that is not"),
        (lambda body: body[:4] + struct.pack("<H", 7) + body[6:], "coded token 2 refers to one that is not before it"),
        (lambda body: body[:10] + b"\xff\xff" + body[12:], "coded token 5 refers to one that is not before it"),
    ],
)
def test_references_that_no_encoder_writes_are_refused_by_their_section(profile, edit, message):
    data = encode(KV, profile)
    forged = with_section(data, SECTION_REFERENCES, edit(bytes(section(data, SECTION_REFERENCES))))
    with pytest.raises(FormatError, match=f"codec transform: section 16: {message}"):
        decode_chunk(forged, profile)


@pytest.mark.parametrize(("level", "step", "choice"), [(7, 4, 2), (0, 0, 0)])
def test_tables_outside_the_grid_are_refused_by_the_section(profile, level, step, choice):
    """The finest steps of the finest level have none before them; behind the coarsest of the coarsest there is none."""
    data = encode(KV, profile, level)
    data = with_section(data, SECTION_TOKEN_STEPS, bytes([step] * 240))
    body = section(data, SECTION_REFERENCES)
    body[choice_at(0)] = choice
    with pytest.raises(FormatError, match="section 16: coded token 0 has tables outside the grid"):
        decode_chunk(with_section(data, SECTION_REFERENCES, bytes(body)), profile)


def test_another_reference_than_the_encoders_gives_another_tensor_where_it_is_used(profile):
    data = encode(KV, profile)
    body = section(data, SECTION_REFERENCES)
    used = [token for token in range(240) if body[choice_at(token)] // 3 == 4]
    token = used[-1]
    assert struct.unpack_from("<H", body, 2 * token)[0] != 3
    struct.pack_into("<H", body, 2 * token, 3)
    back = decode_chunk(with_section(data, SECTION_REFERENCES, bytes(body)), profile).kv
    changed = (back - decode_chunk(data, profile).kv).abs().amax(dim=(0, 1, 3, 4)).nonzero().flatten().tolist()

    # the token, and those behind it that refer to it
    assert changed[0] == token


def test_chains_that_grow_end_at_the_largest_symbol_and_in_a_finite_tensor(profiles):
    used = profiles[False, True]
    data = encode(KV, used, 0)
    first = np.maximum(np.arange(240) - 1, 0).astype("<u2").tobytes()
    body = bytes(section(data, SECTION_REFERENCES))
    # the last mode takes more of both than a token has; tables stay as they were
    choices = np.frombuffer(body, "u1", 240, 4 * 240).copy()
    choices[1:] = choices[1:] % 3 + 3 * 8
    kv = decode_chunk(with_section(data, SECTION_REFERENCES, 2 * first + choices.tobytes()), used).kv

    assert bool(torch.isfinite(kv).all())
    assert float(kv.abs().max()) > 100 * float(KV.abs().max())


@pytest.fixture(scope="module")
def small(profile):
    kv = KV[:, :, 112:128]
    return kv, encode(kv, profile, tokens_behind=300)


def test_each_byte_of_a_small_section_flipped_ends_in_an_error_or_a_tensor(profile, small):
    kv, data = small
    body = section(data, SECTION_REFERENCES)
    outcomes = set()
    for at in range(len(body)):
        for mask in (0x01, 0x03, 0x40, 0xFF):
            edited = bytearray(body)
            edited[at] ^= mask
            began = time.monotonic()
            outcomes.add(outcome(with_section(data, SECTION_REFERENCES, bytes(edited)), profile, kv.shape))
            assert time.monotonic() - began < 2
    assert outcomes == {"refused", "tensor"}


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_any_references_steps_and_entries_end_in_an_error_or_a_tensor(profile, small, data):
    kv, container = small
    for section_id in (SECTION_REFERENCES, SECTION_TOKEN_STEPS, SECTION_CODEBOOK_ENTRIES):
        body = section(container, section_id)
        edits = st.tuples(st.integers(0, len(body) - 1), st.integers(0, 30) | st.integers(0, 255))
        for at, value in data.draw(st.lists(edits, max_size=3)):
            body[at] = value
        container = with_section(container, section_id, bytes(body))
    outcome(container, profile, kv.shape)


def outcome(data, profile, shape):
    try:
        kv = decode_chunk(data, profile).kv
    except FormatError:
        return "refused"
    assert kv.shape == shape
    assert bool(torch.isfinite(kv).all())
    return "tensor"


def test_inspect_names_the_section(profile, tmp_path, capsys):
    (tmp_path / "chunk").write_bytes(encode(KV, profile))
    assert main(["inspect", str(tmp_path / "chunk")]) == 0

    shown = capsys.readouterr().out
    assert re.search(r"16 +references of tokens +1,200 bytes", shown)
    assert "ok       section 16, references of tokens" in shown


def test_a_callers_modes_of_torch_change_neither_bytes_nor_tensor(profile):
    data = encode(KV, profile)
    plain = decode_chunk(data, profile).kv
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert encode(KV, profile) == data
        assert torch.equal(decode_chunk(data, profile).kv, plain)
    with torch.inference_mode():
        assert encode(KV, profile) == data
    assert encode(KV.clone().requires_grad_(), profile) == data
