"""Tokens near the end of their context, which what follows looks at most, have finer steps."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from checks import IDENTITY, identity_of, make_chunk

from cachegen.codecs.token_steps import LEVEL_DISTANCE, choose_offsets, read_offsets, write_offsets
from cachegen.codecs.transform import SECTION_COEFFICIENTS, SECTION_TOKEN_STEPS, SINK_TOKENS, TransformCodec
from cachegen.codecs.transform_tables import stream_coefficients
from cachegen.encoding import Encoding
from cachegen.errors import FormatError, InvalidInputError
from cachegen.kernels.uniform import GRID_STEPS, LEVEL_PLACES, TOKEN_REACH
from cachegen.kv import KVShape, layout_of
from cachegen.pipeline import decode_chunk, encode_chunk
from cachegen.profile_builder import ProfileBuilder

# A context long enough for tokens of all steps, in one chunk.
LONG = make_chunk(3, 3000, 2, 8, torch.float32)


@pytest.fixture(scope="module")
def profile():
    builder = ProfileBuilder(KVShape(3, 2, 8), IDENTITY.model_fingerprint)
    builder.add(LONG)
    return builder.build()


def round_trip(kv, profile, level, tokens_behind):
    identity = replace(identity_of(profile), first_token=SINK_TOKENS)
    return decode_chunk(encode_chunk(kv, Encoding("transform", level), identity, profile, tokens_behind), profile).kv


def sections_of(kv, profile, level, tokens_behind=0):
    sections = TransformCodec("numba").encode(kv, level, profile.tables, SINK_TOKENS, tokens_behind)
    return {key: memoryview(body) for key, body in sections.items()}


@pytest.mark.parametrize("level", range(len(LEVEL_PLACES)))
@pytest.mark.parametrize("tokens", [1, 2, 63, 3000])
def test_tokens_of_all_steps_come_back_in_their_places(profile, level, tokens):
    kv = LONG[:, :, -tokens:]
    back = round_trip(kv, profile, level, tokens_behind=0)
    offsets = read_offsets(sections_of(kv, profile, level)[SECTION_TOKEN_STEPS], tokens)

    if tokens == 3000:
        assert set(offsets.tolist()) == set(range(-TOKEN_REACH, TOKEN_REACH + 1))
    # the space of equal harm is that of the deviations of each layer here
    error = (back - kv).double().square().mean(dim=(0, 1, 3, 4)).sqrt()
    steps = np.asarray(GRID_STEPS)[LEVEL_PLACES[level] + offsets]
    assert bool((error.numpy() <= 1.5 * steps * float(kv.std())).all())


def test_errors_grow_with_the_distance_to_the_contexts_end(profile):
    error = (round_trip(LONG, profile, 3, tokens_behind=0) - LONG).square().mean(dim=(0, 1, 3, 4))

    parts = [
        float(error[-end : -start or None].mean()) for start, end in ((0, 200), (300, 500), (600, 1100), (2000, 2800))
    ]
    assert parts == sorted(parts)
    assert parts[-1] > 3 * parts[0]


def test_a_chunk_of_unknown_place_has_one_step(profile):
    body = sections_of(LONG[:, :, :50], profile, 3, tokens_behind=None)[SECTION_TOKEN_STEPS]

    assert bytes(body) == bytes([TOKEN_REACH] * 50)


def test_steps_depend_on_the_distance_alone_and_not_on_how_the_context_is_cut():
    whole = choose_offsets(3000, 0)

    assert whole.tolist() == [*choose_offsets(1000, 2000), *choose_offsets(1500, 500), *choose_offsets(500, 0)]
    assert (np.diff(whole) <= 0).all()
    assert whole[-1] == -TOKEN_REACH
    assert choose_offsets(1, LEVEL_DISTANCE - 1).tolist() == [0]
    assert choose_offsets(1, 10**6).tolist() == [TOKEN_REACH]


@pytest.mark.parametrize("step", [2 * TOKEN_REACH + 2, 255])
def test_steps_outside_the_reach_are_refused(step):
    with pytest.raises(FormatError, match=f"token 1 has step {step}"):
        read_offsets(memoryview(bytes([0, step, 1])), 3)


def test_a_wrong_number_of_steps_is_refused():
    with pytest.raises(FormatError, match="2 bytes for 3 coded tokens"):
        read_offsets(memoryview(b"\0\0"), 3)


def test_other_steps_than_the_encoders_do_not_decode(profile):
    kv = LONG[:, :, -1000:]
    sections = sections_of(kv, profile, 2)
    sections[SECTION_TOKEN_STEPS] = memoryview(write_offsets(np.zeros(1000, dtype=np.int64)))

    with pytest.raises(FormatError, match=f"section {SECTION_COEFFICIENTS}"):
        TransformCodec("numba").decode(sections, layout_of(kv), 2, profile.tables, SINK_TOKENS)


@pytest.mark.parametrize(
    ("tokens", "coefficients"),
    [(1, 4096), (63, 4096), (64, 4096), (65, 2048), (256, 1024), (257, 512), (5000, 512)],
)
def test_streams_of_few_tokens_hold_more_coefficients(tokens, coefficients):
    assert stream_coefficients(tokens) == coefficients
    assert coefficients == 512 or coefficients * tokens <= 512 * 512


@pytest.mark.parametrize("tokens_behind", [-1, 1.5, True, "x", 1 << 49])
def test_what_is_no_number_of_tokens_is_refused(profile, tokens_behind):
    with pytest.raises(InvalidInputError, match="tokens_behind is"):
        round_trip(LONG[:, :, :5], profile, 3, tokens_behind)


def test_a_callers_autocast_changes_nothing(profile):
    kv = LONG[:, :, -100:]
    plain = round_trip(kv, profile, 1, 0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = round_trip(kv, profile, 1, 0)

    assert torch.equal(plain, cast)
