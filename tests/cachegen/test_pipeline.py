from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import torch
from checks import IDENTITY, identity_of, make_chunk, make_profile, profile_of, same_bits, with_field

from cachegen.encoding import ENCODINGS, Encoding
from cachegen.errors import FormatError, InvalidInputError, MismatchError, NonFiniteError
from cachegen.kernels import cast, numba_quantize, numba_rans, numba_restore
from cachegen.pipeline import decode_chunk, encode_chunk, warm_up

RAW = Encoding("raw")
CODED = Encoding("cachegen", 1)


@pytest.mark.parametrize("encoding", ENCODINGS, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_decoded_chunk_says_what_was_encoded(encoding, dtype):
    kv = make_chunk(dtype=dtype)
    profile = profile_of(kv)
    identity = identity_of(profile)

    decoded = decode_chunk(encode_chunk(kv, encoding, identity, profile), profile, identity)

    assert (decoded.encoding, decoded.identity) == (encoding, identity)
    assert (decoded.kv.shape, decoded.kv.dtype) == (kv.shape, dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_raw_is_exact_to_the_sign_of_zero(dtype):
    kv = make_chunk(dtype=dtype)
    kv[0, 0, 0, 0, 0], kv[0, 0, 0, 0, 1] = -0.0, 0.0
    kv[0, 0, 0, 0, 2], kv[0, 0, 0, 0, 3] = torch.finfo(dtype).max, torch.finfo(dtype).smallest_normal / 2

    assert same_bits(decode_chunk(encode_chunk(kv, RAW, IDENTITY, None), None).kv, kv)


@pytest.mark.parametrize("encoding", ENCODINGS, ids=str)
def test_strides_of_the_input_do_not_matter(encoding):
    kv = make_chunk()
    strided = kv.permute(0, 1, 3, 2, 4).contiguous().permute(0, 1, 3, 2, 4)
    profile = profile_of(kv)

    assert not strided.is_contiguous()
    assert encode_chunk(strided, encoding, identity_of(profile), profile) == encode_chunk(
        kv, encoding, identity_of(profile), profile
    )


@pytest.mark.parametrize("encoding", ENCODINGS, ids=str)
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_non_finite_values_are_refused_by_every_codec(encoding, value):
    kv = make_chunk()
    kv[2, 1, 22, 1, 4] = value
    profile = profile_of(kv)

    with pytest.raises(NonFiniteError, match="layer 2, K/V V, token 22, head 1, dim 4"):
        encode_chunk(kv, encoding, identity_of(profile), profile)


def test_fp8_caches_are_refused_by_dtype_and_not_stored_empty():
    with pytest.raises(InvalidInputError, match="float8_e4m3fn"):
        encode_chunk(make_chunk().to(torch.float8_e4m3fn), RAW, IDENTITY, None)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("model_fingerprint", bytes(16)),
        ("profile_hash", bytes(32)),
        ("chunk_key", bytes(32)),
        ("chunk_index", 4),
        ("first_token", 0),
    ],
)
def test_a_chunk_that_is_not_the_expected_one_is_refused_by_field(field, value):
    data = encode_chunk(make_chunk(), RAW, IDENTITY, None)

    with pytest.raises(MismatchError, match=field):
        decode_chunk(data, None, replace(IDENTITY, **{field: value}))


def test_wrong_profile_is_refused_on_both_sides():
    kv = make_chunk()
    profile, other = profile_of(kv), make_profile(tokens=40)
    data = encode_chunk(kv, CODED, identity_of(profile), profile)

    with pytest.raises(MismatchError, match="profile hash"):
        decode_chunk(data, other)
    with pytest.raises(MismatchError, match="profile hash"):
        encode_chunk(kv, CODED, identity_of(profile), other)


def test_missing_profile_is_refused_on_both_sides():
    kv = make_chunk()
    data = encode_chunk(kv, CODED, identity_of(profile_of(kv)), profile_of(kv))

    with pytest.raises(InvalidInputError, match="cachegen-1 needs a profile"):
        decode_chunk(data, None)
    with pytest.raises(InvalidInputError, match="cachegen-1 needs a profile"):
        encode_chunk(kv, CODED, IDENTITY, None)


def test_profile_of_another_shape_or_model_is_refused():
    profile = make_profile()
    foreign = replace(identity_of(profile), model_fingerprint=bytes(16))

    with pytest.raises(MismatchError, match="shape"):
        encode_chunk(make_chunk(layers=4), CODED, identity_of(profile), profile)
    with pytest.raises(MismatchError, match="model fingerprint"):
        encode_chunk(make_chunk(), CODED, foreign, profile)


def test_container_that_lies_about_its_profiles_shape_is_refused():
    kv = make_chunk(heads=2, dim=5)
    profile = profile_of(kv)
    data = encode_chunk(kv, CODED, identity_of(profile), profile)

    with pytest.raises(FormatError, match="its profile has"):
        decode_chunk(with_field(with_field(data, 40, "I", 5), 44, "I", 2), profile)


def test_memoryview_decodes_as_bytes_do():
    kv = make_chunk()
    data = encode_chunk(kv, RAW, IDENTITY, None)
    padded = memoryview(b"x" + data + b"x")[1:-1]

    assert same_bits(decode_chunk(padded, None).kv, kv)


def test_decoded_tensor_does_not_share_the_callers_bytes():
    kv = make_chunk()
    data = bytearray(encode_chunk(kv, RAW, IDENTITY, None))
    decoded = decode_chunk(memoryview(data), None).kv
    data[-1] ^= 0xFF

    assert same_bits(decoded, kv)


def test_many_threads_decode_the_same_bits():
    kv = make_chunk(tokens=101)
    profile = profile_of(kv)
    data = [encode_chunk(kv, encoding, identity_of(profile), profile) for encoding in ENCODINGS]
    alone = [decode_chunk(item, profile).kv for item in data]

    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda item: decode_chunk(item, profile).kv, data * 8))

    assert all(same_bits(a, b) for a, b in zip(alone * 8, together, strict=True))


def test_nothing_is_left_to_compile_after_warm_up():
    warm_up()
    kernels = [numba_rans.count_kernel, numba_rans._encode_kernel, numba_rans._decode_kernel]
    kernels += [cast._bfloat16_kernel]
    kernels += [item for name, item in vars(numba_quantize).items() if name.endswith("s_kernel")]
    of_two_types = [numba_rans._decode_kernel, numba_restore._restore_kernel]
    kernels += of_two_types[1:]
    before = [len(kernel.signatures) for kernel in kernels]
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        kv = make_chunk(tokens=31, dtype=dtype)
        profile = profile_of(kv)
        for encoding in ENCODINGS:
            data = encode_chunk(kv, encoding, identity_of(profile), profile)
            decode_chunk(data, profile)
            decode_chunk(data, profile, out=kv.transpose(2, 3).contiguous().transpose(2, 3))

    assert before == [2 if kernel in of_two_types else 1 for kernel in kernels]
    assert [len(kernel.signatures) for kernel in kernels] == before
