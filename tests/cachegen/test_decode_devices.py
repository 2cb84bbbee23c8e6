"""Where chunks are decoded, and to: PyTorch's default device has no say in it, and GPUs decode what goes to them."""

import pytest
import torch
from checks import identity_of, make_chunk, make_profile, section, with_section
from triton_device import DEVICE, MARK, many_lanes  # noqa: F401 - a fixture

from cachegen import pipeline
from cachegen.codecs import CODECS, GPU_CODECS, decoder_for
from cachegen.codecs.transform import SECTION_COEFFICIENTS
from cachegen.encoding import ENCODINGS, Encoding
from cachegen.errors import FormatError, InvalidInputError
from cachegen.pipeline import decode_chunk, encode_chunk

ON_GPU = [Encoding("cachegen", 1), Encoding("transform", 0), Encoding("transform", 4)]


@pytest.fixture
def meta_by_default():
    torch.set_default_device("meta")
    yield
    torch.set_default_device(None)


@pytest.mark.parametrize("encoding", ENCODINGS, ids=str)
def test_the_default_device_changes_neither_bytes_nor_tensor(encoding, request):
    profile, kv = make_profile(), make_chunk()
    data = encode_chunk(kv, encoding, identity_of(profile), profile)
    expected = decode_chunk(data, profile).kv

    request.getfixturevalue("meta_by_default")

    assert encode_chunk(kv, encoding, identity_of(profile), profile) == data
    decoded = decode_chunk(data, profile).kv
    assert decoded.device == torch.device("cpu")
    assert torch.equal(decoded, expected)


@pytest.fixture
def another_dtype_by_default():
    torch.set_default_dtype(torch.bfloat16)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("encoding", ON_GPU, ids=str)
def test_the_default_dtype_changes_no_bytes(encoding, request):
    kv, fresh = make_chunk(), make_profile.__wrapped__()
    data = encode_chunk(kv, encoding, identity_of(fresh), fresh)
    # one that has kept nothing of an earlier call
    again = make_profile.__wrapped__()
    request.getfixturevalue("another_dtype_by_default")

    assert encode_chunk(kv, encoding, identity_of(again), again) == data
    assert torch.equal(decode_chunk(data, again).kv, decode_chunk(data, fresh).kv)


@pytest.mark.parametrize("data", [None, "abc", 7, memoryview(bytes(64))[::2]], ids=["None", "str", "int", "strided"])
def test_what_is_no_buffer_is_refused_by_its_type(data):
    with pytest.raises(InvalidInputError, match=f"contiguous buffer, got .*{type(data).__name__}"):
        decode_chunk(data, None)


def test_only_chunks_that_go_to_a_gpu_are_decoded_by_its_kernels():
    for name, codec in CODECS.items():
        assert decoder_for(name, torch.device("cpu")) is codec
        assert decoder_for(name, torch.device("cuda", 1)) is GPU_CODECS.get(name, codec)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "encoding",
    [pytest.param(encoding, marks=MARK) for encoding in ON_GPU],
    ids=str,
)
@pytest.mark.usefixtures("many_lanes")
def test_chunks_decode_on_the_gpu_to_what_they_are_elsewhere(encoding, dtype, monkeypatch):
    profile = make_profile(2, 2, 4)
    # the first tokens of a context are exact, and the others have steps by their distance to its end
    identity = identity_of(profile, first_token=0)
    data = encode_chunk(make_chunk(2, 14, 2, 4, dtype), encoding, identity, profile, tokens_behind=400)
    expected = decode_chunk(data, profile).kv
    used = []
    monkeypatch.setattr(pipeline, "decoder_for", lambda name, _device: used.append(name) or GPU_CODECS[name])

    decoded = decode_chunk(data, profile, device=DEVICE).kv

    assert used == [encoding.codec]
    assert decoded.device.type == DEVICE.type
    if encoding.codec == "cachegen":
        assert torch.equal(decoded.cpu(), expected)
        return
    # a GPU multiplies in bfloat16, the interpreter in what the CPU does
    tolerance = 2**-6 if DEVICE.type == "cuda" or dtype == torch.bfloat16 else 2**-18
    torch.testing.assert_close(decoded.cpu(), expected, rtol=tolerance, atol=tolerance * float(expected.abs().max()))
    assert torch.equal(decoded[:, :, :4].cpu(), expected[:, :, :4])


@pytest.mark.parametrize("encoding", [Encoding("transform", 2)], ids=str)
@pytest.mark.parametrize("backend", [CODECS, pytest.param(GPU_CODECS, marks=MARK)], ids=["cpu", "gpu"])
def test_a_damaged_stream_of_the_transform_is_named_by_unit_step_and_coefficients(encoding, backend, monkeypatch):
    monkeypatch.setattr(pipeline, "decoder_for", lambda name, _device: backend[name])
    profile = make_profile(2, 2, 4)
    data = encode_chunk(make_chunk(2, 14, 2, 4), encoding, identity_of(profile), profile)
    body = section(data, SECTION_COEFFICIENTS)
    # the first stream: length, head, directory, then the low byte of its first lane's state
    body[4 + 8 + 8] ^= 1

    with pytest.raises(
        FormatError, match=r"section 9: rANS stream of unit 0, step 0\.4( by tables of \S+)?, coefficients 0\.\.\d+: "
    ):
        decode_chunk(with_section(data, SECTION_COEFFICIENTS, body), profile)
