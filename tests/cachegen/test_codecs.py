import numpy as np
import pytest
import torch
from checks import backends, identity_of, make_chunk, profile_of, same_bits
from hypothesis import given, settings
from hypothesis import strategies as st

from cachegen.codecs import CODECS
from cachegen.codecs.cachegen import CachegenCodec, as_rows
from cachegen.encoding import ENCODINGS, Encoding
from cachegen.errors import UnknownNameError
from cachegen.kernels import anchor, get_backend
from cachegen.kernels.scales import scale_values
from cachegen.kv import layout_of
from cachegen.pipeline import decode_chunk, encode_chunk

LEVELS = range(5)
finite_floats = st.floats(width=32, allow_nan=False, allow_infinity=False)


def encode(kv, level=1):
    profile = profile_of(kv)
    return encode_chunk(kv, Encoding("cachegen", level), identity_of(profile), profile)


def round_trip(kv, level=1):
    return decode_chunk(encode(kv, level), profile_of(kv)).kv


def error_bound(kv, level):
    """Half a scale for anchors, half a bin for deltas, and the rounding to the dtype."""
    x = as_rows(kv)
    q = backends()[0].quantize(x, level)
    steps = np.repeat(anchor.bins(q.sigmas, level).astype(np.float64)[:, None], x.shape[1], axis=1)
    steps[:, :: anchor.GROUP_TOKENS] = scale_values(q.scale_bits)
    bound = torch.from_numpy(steps).reshape(kv.shape[0], 2, kv.shape[2], 1, 1) / 2 * (1 + 1e-6)
    info = torch.finfo(kv.dtype)
    return bound * (1 + info.eps) + kv.double().abs() * info.eps + info.smallest_normal * info.eps


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("tokens", [1, 2, 9, 10, 11, 63, 100])
@pytest.mark.parametrize(("layers", "heads", "dim"), [(1, 1, 1), (3, 3, 5), (4, 2, 16)])
def test_error_is_at_most_half_a_bin(level, tokens, layers, heads, dim):
    kv = make_chunk(layers, tokens, heads, dim, torch.float32)
    back = round_trip(kv, level)

    assert back.shape == kv.shape
    assert bool(((back.double() - kv.double()).abs() <= error_bound(kv, level)).all())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_error_bound_holds_in_16_bit_types(dtype):
    kv = make_chunk(tokens=63, dtype=dtype)
    back = round_trip(kv, 0)

    assert back.dtype == dtype
    assert bool(((back.double() - kv.double()).abs() <= error_bound(kv, 0)).all())


@settings(max_examples=80, deadline=None)
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
    assert bool(((back.double() - kv.double()).abs() <= error_bound(kv, level)).all())


@pytest.mark.parametrize("level", LEVELS)
def test_zero_tokens_decode_near_zero_and_an_empty_chunk_exactly(level):
    kv = make_chunk()
    kv[:, :, 10] = 0
    assert bool((round_trip(kv, level)[:, :, 10] == 0).all())
    assert not bool(round_trip(torch.zeros_like(kv), level).any())


def test_one_outlier_among_thousands_survives_as_an_escape():
    kv = torch.zeros((1, 2, 2001, 1, 4), dtype=torch.float32)
    kv[0, 0, 5, 0, 0] = 1e30
    kv[0, 1, 5, 0, 0] = -3e38
    back = round_trip(kv, 0)

    assert bool(((back - kv).abs().double() <= error_bound(kv, 0)).all())
    assert back[0, 0, 5, 0, 0] == pytest.approx(1e30, rel=1e-3)


@pytest.mark.parametrize("encoding", ENCODINGS, ids=str)
def test_more_tokens_than_16_bit_counters_hold_are_coded(encoding):
    kv = make_chunk(layers=1, tokens=70_001, heads=1, dim=1)
    profile = profile_of(kv)
    back = decode_chunk(encode_chunk(kv, encoding, identity_of(profile), profile), profile).kv

    assert back.shape == kv.shape
    assert bool(((back - kv).float().abs() <= kv.float().abs().max()).all())


def test_finer_levels_take_more_bytes_and_err_less():
    kv = make_chunk(layers=3, tokens=400, heads=2, dim=5, dtype=torch.float32)
    sizes = [len(encode(kv, level)) for level in LEVELS]
    errors = [float((round_trip(kv, level) - kv).pow(2).mean()) for level in LEVELS]

    assert sizes == sorted(sizes, reverse=True)
    assert errors == sorted(errors)
    assert len(set(sizes)) == len(sizes)


@pytest.mark.parametrize("tokens", [1, 9, 10, 11, 63])
@pytest.mark.parametrize(("layers", "heads", "dim"), [(1, 1, 3), (3, 3, 5)])
def test_codec_gives_the_same_bytes_and_bits_on_every_backend(tokens, layers, heads, dim):
    kv = make_chunk(layers, tokens, heads, dim)
    tables = profile_of(kv).tables
    reference, numba = CachegenCodec("reference"), CachegenCodec("numba")
    sections = reference.encode(kv, 1, tables, 0)

    assert sections == numba.encode(kv, 1, tables, 0)
    views = {key: memoryview(body) for key, body in sections.items()}
    decoded = decode_chunk(encode(kv), profile_of(kv))
    for codec in (reference, numba):
        back = codec.decode(views, layout_of(kv), 1, tables, 0)
        assert same_bits(back, decoded.kv)


def test_registry_codecs_run_on_the_compiled_backend():
    assert isinstance(CODECS["cachegen"], CachegenCodec)
    assert CODECS["cachegen"]._backend is get_backend("numba")


def test_unknown_backend_is_refused_with_the_known_ones():
    with pytest.raises(UnknownNameError, match="reference, numba"):
        get_backend("cuda")
