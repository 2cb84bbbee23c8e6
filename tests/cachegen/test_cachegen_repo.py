"""The published code's codec: its numbers, and the values that it breaks on."""

import numpy as np
import pytest
import torch
from checks import IDENTITY, make_chunk, same_bits, with_section
from hypothesis import given, settings
from hypothesis import strategies as st

from cachegen.codecs.cachegen_repo import SECTION_TABLES, CachegenRepoCodec
from cachegen.codecs.published_levels import largest_values, row_bins
from cachegen.container import unpack
from cachegen.encoding import Encoding
from cachegen.errors import FormatError
from cachegen.kv import layout_of
from cachegen.pipeline import decode_chunk, encode_chunk

LEVELS = range(3)
DTYPES = [torch.float32, torch.float16, torch.bfloat16]
finite_floats = st.floats(width=32, allow_nan=False, allow_infinity=False)


def encode(kv, level):
    return encode_chunk(kv, Encoding("cachegen-repo", level), IDENTITY, None)


def round_trip(kv, level):
    return decode_chunk(encode(kv, level), None, IDENTITY).kv


def error_bound(kv, level):
    """Half a step of scale / M, and the rounding of float32 scales to bfloat16 and of values to the dtype."""
    scale = kv.double().abs().amax(dim=(3, 4), keepdim=True)
    if kv.dtype == torch.float32:
        scale = scale * (1 + 2.0**-7)
    largest = torch.from_numpy(largest_values(row_bins(level, kv.shape[0]))).reshape(-1, 2, 1, 1, 1)
    info = torch.finfo(kv.dtype)
    # below the smallest scale with a finite quotient a value may become 0
    smallest = 2.0**-122 + info.smallest_normal * info.eps
    return scale / largest / 2 * (1 + 2.0**-20) + scale * info.eps + smallest


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("layers", "tokens", "heads", "dim"), [(1, 1, 1, 1), (4, 23, 2, 5), (3, 256, 3, 3), (2, 515, 1, 4)]
)
def test_error_is_at_most_half_a_step(level, dtype, layers, tokens, heads, dim):
    kv = make_chunk(layers, tokens, heads, dim, dtype)
    back = round_trip(kv, level)

    assert (back.shape, back.dtype) == (kv.shape, dtype)
    assert bool(((back.double() - kv.double()).abs() <= error_bound(kv, level)).all())


@settings(max_examples=80, deadline=None)
@given(
    values=st.lists(finite_floats, min_size=2, max_size=30),
    level=st.sampled_from(LEVELS),
    dtype=st.sampled_from(DTYPES),
)
def test_any_finite_values_stay_finite_and_in_bound(values, level, dtype):
    info = torch.finfo(dtype)
    tokens = torch.tensor(values, dtype=torch.float64).clamp(info.min, info.max).to(dtype)
    kv = tokens.reshape(1, 1, -1, 1, 1).expand(1, 2, -1, 1, 2).contiguous()
    back = round_trip(kv, level)

    assert bool(torch.isfinite(back).all())
    assert bool(((back.double() - kv.double()).abs() <= error_bound(kv, level)).all())


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_tokens_of_zeros_decode_to_zeros_beside_others(level, dtype):
    kv = make_chunk(dtype=dtype)
    kv[:, :, 10] = 0
    back = round_trip(kv, level)

    assert not bool(back[:, :, 10].any())
    assert bool(back[:, :, 11].any())
    assert not bool(round_trip(torch.zeros_like(kv), level).any())


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_largest_value_of_a_token_is_exact_in_16_bit_types(level, dtype):
    kv = make_chunk(dtype=dtype)
    kv[..., 0, 0] = torch.finfo(dtype).max
    back = round_trip(kv, level)[..., 0, 0]

    assert bool(torch.isfinite(back).all())
    if dtype != torch.float32:
        assert bool((back == torch.finfo(dtype).max).all())


def test_decoded_values_are_those_of_the_published_formula():
    kv = make_chunk(layers=2, tokens=40, heads=1, dim=4)
    back = round_trip(kv, 1)
    # layer 1 of 2: keys in the last group, 16 bins, M = 7; plain float32 arithmetic
    x = kv[1, 0].float().flatten(1)
    largest = x.abs().amax(dim=1, keepdim=True)
    symbols = torch.round(x * (torch.tensor(7.0) / largest) + 7)
    expected = ((symbols - 7) / 7 * largest).to(torch.bfloat16)

    assert same_bits(back[1, 0].flatten(1), expected)


def test_keys_and_values_have_scales_of_their_own():
    kv = torch.ones((1, 2, 3, 1, 2), dtype=torch.bfloat16)
    kv[:, 1] = 1000.0

    assert same_bits(round_trip(kv, 0), kv)


def test_levels_err_less_the_finer_they_are():
    kv = make_chunk(layers=6, tokens=400, heads=2, dim=5, dtype=torch.float32)
    errors = [float((round_trip(kv, level) - kv).pow(2).mean()) for level in LEVELS]

    assert errors == sorted(errors)
    assert len(set(errors)) == 3


@pytest.mark.parametrize("level", LEVELS)
def test_the_sound_tables_of_another_chunk_are_refused(level):
    """They travel in the chunk, so nothing but the end of each bitstream tells that they are not its own."""
    other = unpack(encode(make_chunk(tokens=60, seed=5), level))
    forged = with_section(encode(make_chunk(tokens=60), level), SECTION_TABLES, bytes(other.sections[SECTION_TABLES]))

    with pytest.raises(FormatError, match=r"section 13: row [0-5]: bitstream of run 0, channel"):
        decode_chunk(forged, None)


def test_values_without_a_finite_quotient_are_coded():
    kv = torch.tensor([1e-45, -1e-40, 3e38, -3.4e38, 0.0, 1e-38], dtype=torch.float32).reshape(1, 1, -1, 1, 1)
    back = round_trip(kv.expand(1, 2, -1, 1, 1).contiguous(), 0)

    assert np.isfinite(back.numpy()).all()


@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.parametrize(
    ("tokens", "heads", "dtype"), [(1, 1, torch.float32), (63, 2, torch.float16), (257, 1, torch.bfloat16)]
)
def test_codec_gives_the_same_bytes_and_bits_with_either_range_coder(level, tokens, heads, dtype):
    kv = make_chunk(3, tokens, heads, 5, dtype)
    reference, numba = CachegenRepoCodec("reference"), CachegenRepoCodec("numba")
    sections = reference.encode(kv, level, None, 0)

    assert sections == numba.encode(kv, level, None, 0)
    views = {key: memoryview(body) for key, body in sections.items()}
    first, second = (codec.decode(views, layout_of(kv), level, None, 0) for codec in (reference, numba))
    assert same_bits(first, second)
