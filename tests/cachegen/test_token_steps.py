"""Each token has its own step, by the attention that its keys and values say it will get."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from checks import IDENTITY, identity_of, make_chunk
from tiny_models import random_tokens, tiny_llama

from cachegen.attention_capture import AttentionCapture, received_attention
from cachegen.attention_fit import fit_attention
from cachegen.codecs.base import CodecTables
from cachegen.codecs.token_steps import TokenSteps, read_offsets, write_offsets
from cachegen.codecs.transform import SECTION_COEFFICIENTS, SECTION_TOKEN_STEPS, SINK_TOKENS, TransformCodec
from cachegen.codecs.transform_tables import stream_coefficients
from cachegen.encoding import Encoding
from cachegen.errors import FormatError
from cachegen.kernels.uniform import GRID_STEPS, LEVEL_PLACES, TOKEN_REACH
from cachegen.kv import KVShape, layout_of
from cachegen.pipeline import decode_chunk, encode_chunk
from cachegen.profile import Profile
from cachegen.profile_builder import ProfileBuilder


def weighted_profile(kv):
    """A profile of a chunk that takes the first value channel for what says how attention will fall."""
    builder = ProfileBuilder(KVShape(kv.shape[0], kv.shape[3], kv.shape[4]), IDENTITY.model_fingerprint)
    builder.add(kv)
    profile = builder.build()
    weights = np.zeros_like(profile.tables.transform.token_weights)
    # three octaves of squared attention for each deviation
    weights[1, 0] = 3 / (kv[0, 1, :, 0, 0].std() * profile.tables.transform.value_scales[0])
    transform = replace(profile.tables.transform, token_weights=weights, _slices={})
    tables = CodecTables(profile.tables.anchors, profile.tables.deltas, transform)
    return Profile(profile.shape, profile.model_fingerprint, tables)


def behind_the_sinks(profile):
    return replace(identity_of(profile), first_token=SINK_TOKENS)


def sections_of(kv, profile, level):
    sections = TransformCodec("numba").encode(kv, level, profile.tables, 4)
    return {key: memoryview(body) for key, body in sections.items()}


@pytest.mark.parametrize("level", range(len(LEVEL_PLACES)))
@pytest.mark.parametrize("tokens", [1, 2, 63, 300])
def test_tokens_of_all_steps_come_back_in_their_places(level, tokens):
    kv = make_chunk(3, 300, 2, 8, torch.float32)
    profile = weighted_profile(kv)
    kv = kv[:, :, :tokens]
    coded = encode_chunk(kv, Encoding("transform", level), behind_the_sinks(profile), profile)
    back = decode_chunk(coded, profile).kv
    offsets = read_offsets(sections_of(kv, profile, level)[SECTION_TOKEN_STEPS], tokens)

    if tokens == 300:
        assert set(offsets.tolist()) == set(range(-TOKEN_REACH, TOKEN_REACH + 1))
    # the space of equal harm is that of the deviations of each layer here
    error = (back - kv).double().square().mean(dim=(0, 1, 3, 4)).sqrt()
    deviation = float(kv.std())
    steps = np.asarray(GRID_STEPS)[LEVEL_PLACES[level] + offsets]
    assert bool((error.numpy() <= 1.5 * steps * deviation).all())


def test_tokens_of_more_attention_are_coded_with_finer_steps():
    kv = make_chunk(3, 300, 2, 8, torch.float32)
    profile = weighted_profile(kv)
    back = decode_chunk(encode_chunk(kv, Encoding("transform", 3), behind_the_sinks(profile), profile), profile)
    error = (back.kv - kv).square().mean(dim=(0, 1, 3, 4))
    first_value = kv[0, 1, :, 0, 0]

    assert (
        error[first_value > first_value.quantile(0.8)].mean()
        < 0.5 * error[first_value < first_value.quantile(0.2)].mean()
    )


@pytest.mark.parametrize("offset", [-1, 2 * TOKEN_REACH + 1, 255])
def test_steps_outside_the_reach_are_refused(offset):
    with pytest.raises(FormatError, match="token 1 has step"):
        read_offsets(memoryview(bytes([0, offset % 256, 1])), 3)


def test_a_wrong_number_of_steps_is_refused():
    with pytest.raises(FormatError, match="2 bytes for 3 coded tokens"):
        read_offsets(memoryview(b"\0\0"), 3)


def test_other_steps_than_the_encoders_do_not_decode():
    kv = make_chunk(3, 300, 2, 8, torch.float32)
    profile = weighted_profile(kv)
    sections = sections_of(kv, profile, 2)
    offsets = read_offsets(sections[SECTION_TOKEN_STEPS], 300)
    sections[SECTION_TOKEN_STEPS] = memoryview(write_offsets(np.roll(np.sort(offsets), 150)[::-1] * 0))

    with pytest.raises(FormatError, match=f"section {SECTION_COEFFICIENTS}"):
        TransformCodec("numba").decode(sections, layout_of(kv), 2, profile.tables, 4)


def test_groups_hold_every_token_once_finest_first():
    offsets = np.array([2, 0, -1, 0, 2, -1, 0])
    steps = TokenSteps(4, offsets)

    assert steps.order.tolist() == [2, 5, 1, 3, 6, 0, 4]
    assert steps.groups == [
        (LEVEL_PLACES[4] - 1, slice(0, 2)),
        (LEVEL_PLACES[4], slice(2, 5)),
        (LEVEL_PLACES[4] + 2, slice(5, 7)),
    ]
    assert (np.diff(steps.steps) >= 0).all()


@pytest.mark.parametrize(
    ("tokens", "coefficients"), [(1, 4096), (63, 4096), (64, 4096), (65, 2048), (256, 1024), (257, 512), (5000, 512)]
)
def test_streams_of_few_tokens_hold_more_coefficients(tokens, coefficients):
    assert stream_coefficients(tokens) == coefficients
    assert coefficients == 512 or coefficients * tokens <= 512 * 512


def test_received_attention_is_the_mean_square_over_later_queries():
    model = tiny_llama()
    capture = AttentionCapture(model.shape)
    with capture:
        model.prefill(model.new_cache(200), random_tokens(200))
    got = received_attention(capture.layers(), 200)
    model.network.set_attn_implementation("eager")
    output = model.network(torch.tensor([random_tokens(200)]), output_attentions=True)
    attention = torch.stack(output.attentions)[:, 0, :, ::4].square().mean(dim=(0, 1))
    later = torch.arange(200) <= torch.arange(0, 200, 4)[:, None]
    expected = (attention.sum(dim=0) / later.sum(dim=0)).log2()

    known = got.isfinite()
    assert known.tolist() == (later.sum(dim=0) >= 16).tolist()
    torch.testing.assert_close(got[known], expected[known], rtol=1e-3, atol=1e-3)


def test_a_run_without_attention_says_nothing():
    assert received_attention([], 5).isnan().all()


def test_attention_that_follows_the_features_is_found_again():
    generator = torch.Generator().manual_seed(0)
    features = [torch.randn(6, 8000, generator=generator) * 3 + 1, torch.randn(2, 8000, generator=generator)]
    attention = features[0][2] * 0.5 - features[1][1] - 20
    attention[::3] = torch.nan
    weights = fit_attention(features, attention)
    predicted = sum(w @ part for w, part in zip(weights, features, strict=True))

    known = attention.isfinite()
    assert float((predicted - attention)[known].std()) < 0.1 * float(attention[known].std())


def test_too_few_tokens_of_known_attention_leave_all_steps_alike():
    weights = fit_attention([torch.randn(5, 30)], torch.where(torch.arange(30) < 15, torch.randn(30), torch.nan))

    assert not weights[0].any()
