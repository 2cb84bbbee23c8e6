"""The ``transform`` codec: what it keeps, what it drops, and what it refuses."""

import struct
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from checks import IDENTITY, backends, identity_of, make_chunk, section, with_field, with_section
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.overrides import TorchFunctionMode

from cachegen.codecs import CODECS, transform
from cachegen.codecs.equal_harm import forward
from cachegen.codecs.rotary import Rotary
from cachegen.codecs.transform import (
    SECTION_COEFFICIENTS,
    SECTION_EXACT_TOKENS,
    SINK_TOKENS,
    TransformCodec,
)
from cachegen.container import unpack
from cachegen.encoding import Encoding
from cachegen.errors import FormatError, MismatchError, UnsupportedModelError
from cachegen.kernels import get_backend
from cachegen.kernels.uniform import GRID_STEPS, LEVEL_PLACES
from cachegen.kv import KVShape, layout_of
from cachegen.pipeline import check_encodable, decode_chunk, encode_chunk
from cachegen.profile_builder import ProfileBuilder

LEVEL_STEPS = [GRID_STEPS[place] for place in LEVEL_PLACES]
LEVELS = range(len(LEVEL_STEPS))
finite_floats = st.floats(width=32, allow_nan=False, allow_infinity=False)


def turning(layers, dim, max_tokens=0):
    """Every pair of neighbours turns, at its own speed; an odd last element stands still."""
    pairs = dim // 2
    frequencies, partners = np.zeros((1, dim), np.float32), np.arange(dim, dtype=np.uint16)[None]
    speeds = 1 / 100 ** (np.arange(pairs, dtype=np.float32) / max(1, pairs))
    frequencies[0, : 2 * pairs : 2], frequencies[0, 1 : 2 * pairs : 2] = -speeds, speeds
    partners[0, : 2 * pairs] ^= 1
    return Rotary(np.zeros(layers, np.uint8), frequencies, partners, max_tokens)


def data(layers=3, tokens=500, heads=2, dim=5, dtype=torch.float32):
    return make_chunk(layers, tokens, heads, dim, dtype, seed=1)


@cache
def profile(layers=3, heads=2, dim=5, max_tokens=0):
    """Of the first 400 tokens of ``data``, so that the last 100 are new but alike."""
    builder = ProfileBuilder(KVShape(layers, heads, dim), IDENTITY.model_fingerprint, turning(layers, dim, max_tokens))
    builder.add(data(layers, 500, heads, dim)[:, :, :400])
    return builder.build()


def profile_for(kv):
    return profile(kv.shape[0], kv.shape[3], kv.shape[4])


def identity_at(first_token, used):
    return replace(identity_of(used), first_token=first_token)


def encode(kv, level, first_token=1536):
    used = profile_for(kv)
    return encode_chunk(kv, Encoding("transform", level), identity_at(first_token, used), used)


def round_trip(kv, level, first_token=1536):
    return decode_chunk(encode(kv, level, first_token), profile_for(kv)).kv


def exact_tokens(container):
    body = unpack(container).sections[SECTION_EXACT_TOKENS]
    (count,) = struct.unpack_from("<I", body)
    return list(struct.unpack_from(f"<{count}I", body, 4))


def check_errors(kv, back, level, exact, first_token=1536):
    """Exact tokens are; of each other one, a unit loses a step an element and half a step by rounding at most."""
    used = profile_for(kv)
    stored, kept = kv[:, :, exact], back[:, :, exact]
    if kv.dtype == torch.float32 and bool((stored.abs() <= 65504).all()):
        stored = stored.half().float()
    assert torch.equal(stored, kept)
    coded = [token for token in range(kv.shape[2]) if token not in exact]
    if not coded:
        return
    positions = np.array(coded, dtype=np.int64) + first_token
    finest = torch.finfo(kv.dtype)
    spaces = (forward(x[:, :, coded], used.tables.transform, positions) for x in (kv, back))
    for before, after in zip(*spaces, strict=True):
        error = (before - after).square().mean(dim=1).sqrt()
        # products and the element type round relative to the size of the token
        slack = (before.abs().amax(dim=1) + 100) * (finest.eps + 2**-7)
        assert bool((error <= 1.2 * LEVEL_STEPS[level] + slack).all())


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("tokens", [1, 2, 9, 63, 100])
@pytest.mark.parametrize(("layers", "heads", "dim"), [(1, 1, 1), (3, 2, 5), (4, 1, 16), (1, 3, 7)])
def test_tokens_like_the_calibration_lose_little(level, tokens, layers, heads, dim):
    kv = data(layers, 500, heads, dim)[:, :, 400 : 400 + tokens]
    back = round_trip(kv, level)

    assert back.shape == kv.shape
    check_errors(kv, back, level, exact_tokens(encode(kv, level)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_every_dtype_comes_back_as_it_was(dtype):
    kv = data(dtype=dtype)[:, :, 400:]
    back = round_trip(kv, 0)

    assert back.dtype == dtype
    check_errors(kv, back, 0, exact_tokens(encode(kv, 0)))


def test_finer_levels_take_more_bytes_and_err_less():
    kv = data()[:, :, 400:]
    sizes = [len(encode(kv, level)) for level in LEVELS]
    errors = [float((round_trip(kv, level) - kv).square().mean()) for level in LEVELS]

    assert sizes == sorted(sizes, reverse=True)
    assert errors == sorted(errors)
    assert len(set(sizes)) == len(sizes)


def test_finest_level_is_near_lossless():
    kv = data()[:, :, 400:]
    error = (round_trip(kv, 0) - kv).square().mean() / kv.var()

    assert float(error) < 1e-3


@pytest.mark.parametrize(("first_token", "kept"), [(0, 4), (1, 3), (3, 1), (4, 0), (512, 0)])
def test_the_first_tokens_of_the_context_are_exact_and_those_of_later_chunks_are_not(first_token, kept):
    kv = data(dtype=torch.bfloat16)[:, :, 400:420]

    assert exact_tokens(encode(kv, 4, first_token)) == list(range(kept))
    assert torch.equal(round_trip(kv, 4, first_token)[:, :, :kept], kv[:, :, :kept])


@pytest.mark.parametrize("tokens", [1, 3, SINK_TOKENS])
def test_a_chunk_of_first_tokens_alone_has_no_coefficients(tokens):
    kv = data(dtype=torch.bfloat16)[:, :, 400 : 400 + tokens]
    coded = encode(kv, 2, first_token=0)

    assert list(unpack(coded).sections) == [SECTION_EXACT_TOKENS]
    assert torch.equal(decode_chunk(coded, profile_for(kv)).kv, kv)


@pytest.mark.parametrize(("value", "stored"), [(65504.0, torch.float16), (65520.0, torch.float32)])
def test_exact_tokens_of_float32_take_16_bits_where_they_fit(value, stored):
    kv = data()[:, :, 400:403].clone()
    kv[0, 0, 0, 0, 0] = value
    coded = encode(kv, 2, first_token=0)

    assert len(unpack(coded).sections[SECTION_EXACT_TOKENS]) == 4 + 3 * 4 + kv.numel() * stored.itemsize
    assert torch.equal(decode_chunk(coded, profile_for(kv)).kv, kv.to(stored).float())


def test_keys_cost_no_more_far_from_the_start():
    turned = turning(3, 5)
    still = data()[:, :, 400:]
    sizes = []
    for first in (100, 100_000):
        kv = still.clone()
        kv[:, 0] = turned.apply(still[:, 0], first + np.arange(100))
        sizes.append(len(encode(kv, 2, first)))

    assert sizes[0] == pytest.approx(sizes[1], rel=0.01)


@settings(max_examples=60, deadline=None)
@given(
    values=st.lists(finite_floats, min_size=2, max_size=30),
    level=st.sampled_from(LEVELS),
    dtype=st.sampled_from([torch.float32, torch.float16, torch.bfloat16]),
)
def test_any_finite_values_stay_finite_and_in_bound(values, level, dtype):
    info = torch.finfo(dtype)
    tokens = torch.tensor(values, dtype=torch.float64).clamp(info.min, info.max).to(dtype)
    kv = tokens.reshape(1, 1, -1, 1, 1).expand(1, 2, -1, 1, 2).contiguous()
    back = round_trip(kv, level)

    assert bool(torch.isfinite(back).all())
    check_errors(kv, back, level, exact_tokens(encode(kv, level)))


def test_an_outlier_makes_its_token_exact_and_leaves_the_others_alone():
    kv = data()[:, :, 400:430]
    kv[2, 0, 7, 1, 3] = 1e30
    kv[0, 1, 9, 0, 0] = -3e38

    assert exact_tokens(encode(kv, 3)) == [7, 9]
    check_errors(kv, round_trip(kv, 3), 3, [7, 9])


def test_a_channel_that_calibration_saw_at_rest_survives_when_it_moves():
    quiet = data()
    quiet[1, 0, :, 0, 2] = 0.0
    quiet[1, 1, :, 1, 4] = 5.0
    builder = ProfileBuilder(KVShape(3, 2, 5), IDENTITY.model_fingerprint)
    builder.add(quiet[:, :, :400])
    used = builder.build()
    kv = quiet[:, :, 400:420].clone()
    kv[1, 0, 5, 0, 2] = 1000.0
    back = decode_chunk(encode_chunk(kv, Encoding("transform", 4), identity_of(used), used), used).kv

    assert back[1, 0, 5, 0, 2] == pytest.approx(1000.0, rel=1e-2)
    assert bool((back[1, 1, :, 1, 4] - 5).abs().max() < 0.5)


def test_constant_calibration_and_constant_chunk_are_coded():
    builder = ProfileBuilder(KVShape(2, 1, 4), IDENTITY.model_fingerprint)
    builder.add(torch.full((2, 2, 50, 1, 4), 3.0))
    used = builder.build()
    kv = torch.full((2, 2, 10, 1, 4), 3.0)
    for level in LEVELS:
        back = decode_chunk(encode_chunk(kv, Encoding("transform", level), identity_of(used), used), used).kv
        assert torch.allclose(back, kv, atol=1e-3)


@pytest.mark.parametrize("tokens", [1, 9, 63])
def test_bytes_are_the_same_on_every_backend_and_decode_to_the_same_bits(tokens):
    kv = data()[:, :, 400 : 400 + tokens]
    tables = profile_for(kv).tables
    reference, numba = TransformCodec("reference"), TransformCodec("numba")
    sections = reference.encode(kv, 1, tables, 2)

    assert sections == numba.encode(kv, 1, tables, 2)
    views = {key: memoryview(body) for key, body in sections.items()}
    decoded = [codec.decode(views, layout_of(kv), 1, tables, 2) for codec in (reference, numba)]
    assert torch.equal(*decoded)


@settings(max_examples=50, deadline=None)
@given(
    ratios=st.lists(st.floats(-(2**20), 2**20, width=32), min_size=1, max_size=20),
    step=st.sampled_from(LEVEL_STEPS),
)
def test_quantizers_agree_bit_for_bit(ratios, step):
    y = (np.array([ratios]) * step).astype(np.float32)
    y = y[:, np.abs(y[0] / step) <= 2**20]
    reference, numba = (backend.quantize_uniform(y, step) for backend in backends())

    assert np.array_equal(reference, numba)
    assert bool((np.abs(y - reference * step) <= step / 2 * (1 + 1e-9)).all())


def test_decoding_twice_gives_the_same_bits():
    kv = data(dtype=torch.bfloat16)[:, :, 400:]
    coded = encode(kv, 2)
    first, second = (decode_chunk(coded, profile_for(kv)).kv for _ in range(2))

    assert torch.equal(first, second)


def test_registry_codec_runs_on_the_compiled_backend():
    assert isinstance(CODECS["transform"], TransformCodec)
    assert CODECS["transform"]._backend is get_backend("numba")


def test_another_profile_is_a_mismatch():
    kv = data()[:, :, 400:410]
    builder = ProfileBuilder(KVShape(3, 2, 5), IDENTITY.model_fingerprint)
    builder.add(data()[:, :, :200])

    with pytest.raises(MismatchError, match="profile hash"):
        decode_chunk(encode(kv, 1), builder.build())


def test_a_model_without_a_transform_is_refused_by_its_reason_before_and_while_encoding():
    builder = ProfileBuilder(KVShape(3, 2, 5), IDENTITY.model_fingerprint, "keys turn in spirals")
    builder.add(data()[:, :, :50])
    used = builder.build()
    for refused in (
        lambda: check_encodable([Encoding("raw"), Encoding("transform", 1)], 10, used),
        lambda: encode_chunk(data()[:, :, :9], Encoding("transform", 1), identity_of(used), used),
    ):
        with pytest.raises(UnsupportedModelError, match="transform: keys turn in spirals"):
            refused()
    check_encodable([Encoding("raw"), Encoding("cachegen", 1)], 10, used)


def test_tokens_past_the_point_where_scaling_changes_are_refused():
    used = profile(3, 2, 5, 1000)
    kv = data()[:, :, 400:420]

    encode_chunk(kv, Encoding("transform", 1), identity_at(980, used), used)
    with pytest.raises(UnsupportedModelError, match="from token 1000 on, and this context reaches token 1001"):
        encode_chunk(kv, Encoding("transform", 1), identity_at(981, used), used)
    with pytest.raises(UnsupportedModelError, match="token 1000"):
        check_encodable([Encoding("transform", 0)], 1001, used)


def test_hostile_position_and_codec_name_end_in_format_errors():
    used = profile(3, 2, 5, 1000)
    coded = encode_chunk(data()[:, :, 400:420], Encoding("transform", 1), identity_at(900, used), used)
    with pytest.raises(FormatError, match="no such chunk was encoded"):
        decode_chunk(with_field(coded, 56, "Q", 2**63 - 1), used)


def forge(kv, section_id, form, offset, value, first_token=0):
    coded = encode(kv, 1, first_token)
    body = section(coded, section_id)
    struct.pack_into("<" + form, body, offset, value)
    return with_section(coded, section_id, bytes(body))


@pytest.mark.parametrize(
    ("offset", "value", "message"),
    [
        (0, 21, "21 exact tokens in a chunk of 20"),
        (0, 3, "bytes for 3 exact tokens"),
        (0, 2**32 - 1, "exact tokens in a chunk of 20"),
        (16, 20, "do not rise below 20"),
        (16, 2, "do not rise below 20"),
        (20, 0x7F800000, "NaN or Inf"),
    ],
)
def test_exact_tokens_that_no_encoder_writes_are_refused(offset, value, message):
    kv = data()[:, :, 400:420]
    with pytest.raises(FormatError, match=f"codec transform: section 8: .*{message}"):
        decode_chunk(forge(kv, SECTION_EXACT_TOKENS, "I", offset, value), profile_for(kv))


def test_first_tokens_that_are_not_exact_are_refused():
    kv = data()[:, :, 400:420]
    with pytest.raises(FormatError, match="section 8: token 3 of the context is not exact"):
        decode_chunk(with_field(encode(kv, 1, first_token=4), 56, "Q", 3), profile_for(kv))


@pytest.mark.parametrize(("offset", "value"), [(0, 0), (0, 2**31), (0, 5), (4, 3), (4, 64)])
def test_stream_lengths_and_lanes_that_lie_are_refused(offset, value):
    kv = data()[:, :, 400:420]
    with pytest.raises(FormatError, match="codec transform: section 9: "):
        decode_chunk(forge(kv, SECTION_COEFFICIENTS, "I", offset, value), profile_for(kv))


def test_coefficients_beside_nothing_to_code_are_refused():
    kv = data()[:, :, 400:403]
    coded = encode(kv, 1, first_token=0)
    with pytest.raises(FormatError, match="must have"):
        decode_chunk(with_section(coded, SECTION_COEFFICIENTS, b"abc"), profile_for(kv))


class ProductSizes(TorchFunctionMode):
    """Notes the sizes of every product of matrices while it is active."""

    def __init__(self):
        super().__init__()
        self.sizes = set()

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func in (torch.matmul, torch.Tensor.matmul, torch.Tensor.__matmul__):
            self.sizes.add((*args[0].shape, args[1].shape[1]))
        return func(*args, **(kwargs or {}))


def test_chunks_of_many_lengths_and_levels_are_products_of_a_few_sizes(monkeypatch):
    # a model of a single unit has room for few tokens at once; those of several units restore as many as here
    monkeypatch.setattr(transform, "MEMORY", 10.0)
    kv, sizes = data(), ProductSizes()
    for tokens in (1, 20, 60, 90, 100, 160, 180, 220):
        for level in LEVELS:
            chunk = encode(kv[:, :, :tokens], level)
            with sizes:
                decode_chunk(chunk, profile_for(kv))

    # channels, coefficients, tokens: a library that compiles a product for each size does so three times
    assert {size for size in sizes.sizes if all(size)} == {(60, 64, tokens) for tokens in (16, 64, 128)}
