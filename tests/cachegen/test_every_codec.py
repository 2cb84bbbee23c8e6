"""What every encoding of the registry does with any chunk: shapes, dtypes, extreme values, memory layouts."""

import numpy as np
import pytest
import torch
from checks import IDENTITY, identity_of, make_chunk, profile_of, same_bits
from hypothesis import given, settings
from hypothesis import strategies as st

from cachegen.container import unpack
from cachegen.encoding import ENCODINGS
from cachegen.errors import InvalidInputError
from cachegen.kv import KV_DTYPES, layout_of
from cachegen.pipeline import decode_chunk, encode_chunk

# layers, KV heads, head dim: ones, odd ones, fewer layers than thirds, an odd number of channels
SHAPES = ((1, 1, 1), (2, 1, 3), (3, 2, 5), (1, 3, 2), (4, 1, 8))
TOKENS = (1, 2, 9, 10, 11, 20, 21)


def encode(kv, encoding):
    profile = profile_of(kv)
    return encode_chunk(kv, encoding, identity_of(profile), profile)


def fill(kv, pattern, rng):
    """Overwrite a chunk in place with one of the patterns that break codecs."""
    info = torch.finfo(kv.dtype)
    subnormal = info.smallest_normal * info.eps
    if pattern == "largest":
        kv[:] = info.max
    elif pattern == "largest of both signs":
        kv[:] = torch.where(torch.rand(kv.shape, generator=rng) < 0.5, info.max, info.min).to(kv.dtype)
    elif pattern == "subnormal":
        kv[:] = (torch.randint(-9, 10, kv.shape, generator=rng).double() * subnormal).to(kv.dtype)
    elif pattern == "negative zero":
        kv[:] = -0.0
    elif pattern == "constant rows":
        kv[:] = kv[:, :, :1, :1, :1].clone()
    elif pattern == "one outlier":
        kv[-1, 1, -1, -1, -1] = info.max
    elif pattern == "zero anchors":
        kv[:, :, ::10] = 0
    elif pattern == "zero but anchors":
        kv[:, :, torch.arange(kv.shape[2]) % 10 != 0] = 0
    elif pattern == "largest beside smallest":
        kv[:] = subnormal
        kv[..., 0] = info.min
    else:
        assert pattern == "like a cache"


PATTERNS = (
    "like a cache",
    "largest",
    "largest of both signs",
    "subnormal",
    "negative zero",
    "constant rows",
    "one outlier",
    "zero anchors",
    "zero but anchors",
    "largest beside smallest",
)


@pytest.mark.parametrize("encoding", ENCODINGS, ids=str)
@settings(max_examples=25, deadline=None)
@given(
    shape=st.sampled_from(SHAPES),
    tokens=st.sampled_from(TOKENS),
    dtype=st.sampled_from([entry.torch for entry in KV_DTYPES]),
    pattern=st.sampled_from(PATTERNS),
    seed=st.integers(0, 3),
)
def test_any_chunk_comes_back_finite_with_its_layout_and_not_much_larger(encoding, shape, tokens, dtype, pattern, seed):
    layers, heads, dim = shape
    kv = make_chunk(layers, tokens, heads, dim, dtype, seed)
    fill(kv, pattern, torch.Generator().manual_seed(seed))
    data = encode(kv, encoding)
    back = decode_chunk(data, profile_of(kv)).kv

    assert unpack(data).layout == layout_of(kv) == layout_of(back)
    assert bool(torch.isfinite(back).all())
    # what a codec may add is bounded by the chunk's own values, or by those that its profile was made from
    reach = max(float(x.double().abs().max()) for x in (kv, make_chunk(layers, 60, heads, dim, seed=1)))
    assert float(back.double().abs().max()) <= 4 * reach
    assert encode(kv, encoding) == data


def negated(kv):
    """The same values as a view whose signs PyTorch has yet to flip."""
    return torch._neg_view(-kv)


LAYOUTS = {
    "sliced by steps": lambda kv: kv.repeat_interleave(2, dim=2)[:, :, ::2],
    "cut out of a larger cache": lambda kv: torch.nn.functional.pad(kv, (1, 2, 0, 1, 3, 1))[:, :, 3:-1, :-1, 1:-2],
    "heads before tokens": lambda kv: kv.transpose(2, 3).contiguous().transpose(2, 3),
    "not yet negated": negated,
    "needing gradients": lambda kv: kv.clone().requires_grad_(),
    "a parameter": lambda kv: torch.nn.Parameter(kv.clone()),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("encoding", ENCODINGS, ids=str)
def test_bytes_depend_on_values_alone(encoding, layout):
    kv = make_chunk()
    same = LAYOUTS[layout](kv)

    assert torch.equal(same.detach().resolve_neg(), kv)
    assert encode(same, encoding) == encode(kv, encoding)


@pytest.mark.parametrize("encoding", ENCODINGS, ids=str)
def test_one_vector_repeated_without_memory_of_its_own_is_coded(encoding):
    kv = make_chunk(layers=1, tokens=1, heads=1, dim=8).expand(4, 2, 21, 1, 8)

    assert encode(kv, encoding) == encode(kv.contiguous(), encoding)


@pytest.mark.parametrize("encoding", ENCODINGS, ids=str)
def test_encoding_leaves_its_input_alone_and_decoding_its_bytes(encoding):
    kv = make_chunk(tokens=21)
    before = kv.clone()
    data = bytearray(encode(kv, encoding))
    kept = bytes(data)
    decode_chunk(data, profile_of(kv)).kv.zero_()

    assert same_bits(kv, before)
    assert bytes(data) == kept


@pytest.mark.parametrize("encoding", ENCODINGS, ids=str)
@pytest.mark.parametrize("kind", ["meta", "sparse", "integer", "rank", "array"])
def test_what_cannot_be_coded_is_refused_alike_by_every_codec(encoding, kind):
    kv = make_chunk(dtype=torch.float32)
    profile = profile_of(kv)
    unusable = {
        "meta": kv.to("meta"),
        "sparse": kv.to_sparse(),
        "integer": kv.int(),
        "rank": kv[0],
        "array": np.asarray(kv),
    }[kind]
    with pytest.raises(InvalidInputError, match="KV tensor"):
        encode_chunk(unusable, encoding, identity_of(profile), profile)


def test_no_profile_is_needed_to_read_what_no_tables_coded():
    kv = make_chunk()
    assert same_bits(decode_chunk(encode_chunk(kv, ENCODINGS[0], IDENTITY, None), None).kv, kv)
