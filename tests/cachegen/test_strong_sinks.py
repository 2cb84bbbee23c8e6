"""Strong sinks in a chunk: much finer steps than the others, streams of their own, exact at the finest level."""

import numpy as np
import pytest
import torch
from checks import IDENTITY, section, with_section
from test_reference_chunks import encode

from cachegen.codecs.base import CodecTables
from cachegen.codecs.rotary import no_rotary
from cachegen.codecs.token_steps import STRONG_OFFSET
from cachegen.codecs.transform import (
    SECTION_COEFFICIENTS,
    SECTION_EXACT_TOKENS,
    SECTION_REFERENCES,
    SECTION_TOKEN_STEPS,
    TransformCodec,
)
from cachegen.errors import FormatError
from cachegen.kernels.uniform import GRID_STEPS, LEVEL_PLACES, TOKEN_REACH
from cachegen.kv import KVShape, layout_of
from cachegen.pipeline import decode_chunk
from cachegen.profile import Profile
from cachegen.profile_builder import ProfileBuilder
from cachegen.transform_fit import fit_transform
from cachegen.transform_moments import TransformMoments

# What the section of steps has for them.
STRONG = 2 * TOKEN_REACH + 1
COARSER = range(1, len(LEVEL_PLACES))
SHAPE = KVShape(2, 2, 16)
# Five is a fiftieth of the chunk's tokens.
SINKS, WEAK = [30, 99, 100, 170, 239], 60


def with_sinks(kv):
    """Their values vanish in the second layer."""
    kv = kv.clone()
    kv[1, 1, SINKS] *= 0.01
    kv[1, 1, WEAK] *= 0.2
    return kv


def noise(tokens, seed):
    return torch.randn(SHAPE.chunk_shape(tokens), generator=torch.Generator().manual_seed(seed))


# the second half is much like the first
KV = with_sinks(noise(120, seed=2).repeat(1, 1, 2, 1, 1) + 0.2 * noise(240, seed=3))


@pytest.fixture(scope="module")
def profile():
    builder = ProfileBuilder(SHAPE, IDENTITY.model_fingerprint)
    builder.add(noise(3000, seed=1))
    return builder.build()


@pytest.fixture(scope="module")
def without_references(profile):
    moments = TransformMoments(SHAPE, no_rotary(SHAPE.num_layers, SHAPE.head_dim))
    moments.add(noise(3000, seed=1), 0)
    tables = profile.tables
    transform = fit_transform(moments, references=False)
    return Profile(SHAPE, profile.model_fingerprint, CodecTables(tables.anchors, tables.deltas, transform))


def steps_of(data):
    return np.frombuffer(section(data, SECTION_TOKEN_STEPS), np.uint8).astype(int)


def error_of(data, profile):
    return (decode_chunk(data, profile).kv - KV).square().mean(dim=(0, 1, 3, 4)).sqrt()


@pytest.mark.parametrize("tokens_behind", [None, 0, 200])
@pytest.mark.parametrize("level", COARSER)
def test_strong_sinks_have_an_eighth_of_the_levels_step_as_far_as_the_grid_goes(profile, level, tokens_behind):
    data = encode(KV, profile, level, tokens_behind=tokens_behind)
    steps, error = steps_of(data), error_of(data, profile)

    assert np.flatnonzero(steps == STRONG).tolist() == SINKS
    assert steps[WEAK] == 0
    assert int(np.frombuffer(section(data, SECTION_EXACT_TOKENS), "<u4", 1)[0]) == 0
    # the space of equal harm is that of the deviations of each layer here
    step = GRID_STEPS[max(0, LEVEL_PLACES[level] + STRONG_OFFSET)]
    assert float(error[SINKS].max()) <= 1.5 * step * float(KV.std())


def test_at_the_finest_level_they_are_exact(profile):
    data = encode(KV, profile, 0)
    body = section(data, SECTION_EXACT_TOKENS)

    assert np.frombuffer(body, "<u4", 1 + len(SINKS)).tolist() == [len(SINKS), *SINKS]
    assert len(steps_of(data)) == KV.shape[2] - len(SINKS)
    # float32 elements of the size of these are stored as float16
    assert torch.equal(decode_chunk(data, profile).kv[:, :, SINKS], KV[:, :, SINKS].half().float())


def test_profiles_without_references_know_no_sinks(without_references):
    data = encode(KV, without_references, 3)

    assert set(steps_of(data).tolist()) == {TOKEN_REACH}
    assert float(error_of(data, without_references)[SINKS].max()) > GRID_STEPS[2] * float(KV.std())


@pytest.mark.parametrize("kept", [[30], SINKS, [29, 30], list(range(25, 40))])
@pytest.mark.parametrize("level", [1, 4, 7])
def test_bytes_and_bits_are_the_same_on_every_backend_for_few_tokens_of_either_kind(profile, level, kept):
    kv = KV[:, :, kept]
    # among so few, the usual energy is that of the sinks unless others are there too
    kv = torch.cat([kv, KV[:, :, :20]], dim=2)
    reference, numba = TransformCodec("reference"), TransformCodec("numba")
    sections = reference.encode(kv, level, profile.tables, 1536, 0)

    assert sections == numba.encode(kv, level, profile.tables, 1536, 0)
    assert STRONG in sections[SECTION_TOKEN_STEPS]
    views = {key: memoryview(body) for key, body in sections.items()}
    decoded = [codec.decode(views, layout_of(kv), level, profile.tables, 1536) for codec in (reference, numba)]
    assert torch.equal(*decoded)


def test_references_stay_within_strong_sinks_and_within_the_others(profile):
    body = section(encode(KV, profile, 3), SECTION_REFERENCES)
    first, second = np.frombuffer(body, "<u2", 480).reshape(2, 240).astype(int)
    modes = np.frombuffer(body, np.uint8, 240, 960) // 3
    strong = np.isin(np.arange(240), SINKS)

    assert (modes[strong] > 0).any()
    for reference in (first, second):
        assert (strong[reference] == strong).all()


@pytest.mark.parametrize(("token", "refers_to"), [(100, 98), (101, 100)])
def test_a_reference_from_one_kind_to_the_other_is_refused(profile, token, refers_to):
    data = encode(KV, profile, 3)
    body = section(data, SECTION_REFERENCES)
    body[2 * token : 2 * token + 2] = refers_to.to_bytes(2, "little")
    body[960 + token] = 3 * 4 + 1
    with pytest.raises(FormatError, match=f"section 16: coded token {token} refers to one that is not coded with it"):
        decode_chunk(with_section(data, SECTION_REFERENCES, bytes(body)), profile)


@pytest.mark.parametrize("step", [0, TOKEN_REACH, 2 * TOKEN_REACH])
def test_a_strong_sink_that_is_said_to_be_none_does_not_decode(profile, step):
    data = encode(KV, profile, 4)
    body = section(data, SECTION_TOKEN_STEPS)
    body[SINKS[0]] = step
    with pytest.raises(FormatError, match=f"section ({SECTION_COEFFICIENTS}|{SECTION_REFERENCES})"):
        decode_chunk(with_section(data, SECTION_TOKEN_STEPS, bytes(body)), profile)


def test_a_chunk_decoded_in_blocks_is_what_it_is_at_once(profile, monkeypatch):
    data = encode(KV, profile, 4, tokens_behind=100)
    expected = decode_chunk(data, profile).kv
    for memory in (0.05, 0.3, 5.0):
        monkeypatch.setattr("cachegen.codecs.transform.MEMORY", memory)
        torch.testing.assert_close(decode_chunk(data, profile).kv, expected, rtol=1e-5, atol=1e-5)
