"""Decoding into memory that is there already, such as a cache's: the same bits, in their place alone, or a refusal."""

import asyncio
import time

import pytest
import torch
from checks import identity_of, make_chunk, profile_of, same_bits
from stored_context import COSTS, store_context
from triton_device import DEVICE, MARK, many_lanes  # noqa: F401 - a fixture

from cachegen import ContextLoader, KVCache, StageClock, StoreSource, make_controller, open_store, pipeline, store_kv
from cachegen.codecs import CODECS, GPU_CODECS
from cachegen.container import unpack
from cachegen.encoding import ENCODINGS, Encoding
from cachegen.errors import InvalidInputError, MismatchError
from cachegen.kv import KV_DTYPES, check_kv
from cachegen.pipeline import decode_chunk, encode_chunk

TOKENS = 23
FIRST_TOKEN = 4
WITH_KERNELS = [Encoding("cachegen", 1), Encoding("transform", 0)]


def encode(kv, encoding):
    # at the start of its context, so that the transform has exact tokens too
    profile = profile_of(kv)
    return encode_chunk(kv, encoding, identity_of(profile, first_token=0), profile), profile


def cache_for(kv, device="cpu", fill=7.0):
    """A cache with room before and behind the chunk, filled with something else; and all of its buffer."""
    cache = KVCache(check_kv(kv), kv.dtype, device, capacity_tokens=kv.shape[2] + 9)
    whole = cache.room(0, kv.shape[2] + 9)
    whole.fill_(fill)
    return cache, whole


@pytest.mark.parametrize("dtype", [entry.torch for entry in KV_DTYPES], ids=str)
@pytest.mark.parametrize("encoding", ENCODINGS, ids=str)
def test_a_chunk_decoded_into_a_cache_has_the_bits_it_has_elsewhere_and_touches_nothing_else(encoding, dtype):
    kv = make_chunk(tokens=TOKENS, dtype=dtype)
    data, profile = encode(kv, encoding)
    cache, whole = cache_for(kv)
    room = cache.room(FIRST_TOKEN, TOKENS)
    decoded = decode_chunk(data, profile, out=room)

    assert decoded.kv is room
    assert same_bits(room, decode_chunk(data, profile).kv)
    assert (whole[:, :, :FIRST_TOKEN] == 7).all()
    assert (whole[:, :, FIRST_TOKEN + TOKENS :] == 7).all()


@pytest.mark.parametrize("codecs", [CODECS, pytest.param(GPU_CODECS, marks=MARK)], ids=["cpu", "gpu"])
@pytest.mark.parametrize("encoding", WITH_KERNELS, ids=str)
@pytest.mark.usefixtures("many_lanes")
def test_codecs_with_kernels_store_into_the_cache_themselves(encoding, codecs):
    kv = make_chunk(2, 14, 2, 4)
    data, profile = encode(kv, encoding)
    container, codec = unpack(data), codecs[encoding.codec]
    cache, whole = cache_for(kv, "cpu" if codecs is CODECS else DEVICE)
    room = cache.room(FIRST_TOKEN, 14)
    arguments = (container.sections, container.layout, encoding.level, profile.tables, 0)

    assert codec.decode(*arguments, room) is room
    assert same_bits(room.cpu(), codec.decode(*arguments).cpu())
    assert (whole[:, :, FIRST_TOKEN + 14 :] == 7).all()


def test_a_codec_without_kernels_for_the_device_decodes_elsewhere_and_copies(monkeypatch):
    kv = make_chunk(tokens=TOKENS)
    data, profile = encode(kv, Encoding("quant8"))
    codec = CODECS["quant8"]
    wanted = decode_chunk(data, profile).kv

    class Elsewhere:
        uses_tables = False

        def decode(self, *arguments):
            return codec.decode(*arguments[:-1])

    monkeypatch.setattr(pipeline, "decoder_for", lambda *_: Elsewhere())
    cache, _ = cache_for(kv)
    room = cache.room(FIRST_TOKEN, TOKENS)

    assert decode_chunk(data, profile, out=room).kv is room
    assert same_bits(room, wanted)


@pytest.mark.parametrize("encoding", ENCODINGS, ids=str)
@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (
            lambda kv: kv[:, :, :-1],
            MismatchError,
            r"shape: container has \(3, 2, 23, 2, 5\), out has \(3, 2, 22, 2, 5\)",
        ),
        (lambda kv: kv.half(), MismatchError, "dtype: container has bfloat16, out has float16"),
        (lambda kv: kv.to("meta"), InvalidInputError, "on meta"),
        (lambda kv: kv.transpose(3, 4).contiguous().transpose(3, 4), InvalidInputError, "strides"),
        (lambda kv: kv.transpose(0, 1).contiguous().transpose(0, 1), InvalidInputError, "strides"),
        (lambda kv: kv.clone().requires_grad_(), InvalidInputError, "gradients"),
        (lambda kv: kv.double(), InvalidInputError, "float64"),
        (lambda kv: kv[0], InvalidInputError, "shape"),
        (lambda kv: kv.tolist(), InvalidInputError, "list"),
    ],
    ids=["shape", "dtype", "meta", "strided dims", "strided layers", "gradients", "float64", "rank", "list"],
)
def test_what_a_chunk_does_not_fit_into_is_refused_before_anything_is_decoded(encoding, make, error, match):
    kv = make_chunk(tokens=TOKENS)
    data, profile = encode(kv, encoding)
    with pytest.raises(error, match=match):
        decode_chunk(data, profile, out=make(kv.clone()))


def test_a_device_that_is_not_that_of_out_is_refused_by_both_names():
    kv = make_chunk(tokens=TOKENS)
    data, profile = encode(kv, ENCODINGS[0])
    with pytest.raises(InvalidInputError, match="device: meta is asked for, out is on cpu"):
        decode_chunk(data, profile, device="meta", out=torch.empty_like(kv))


@pytest.mark.parametrize(("first_token", "num_tokens"), [(-1, 3), (0, 0), (30, 3)])
def test_a_cache_has_no_room_outside_its_buffer(first_token, num_tokens):
    cache, _ = cache_for(make_chunk(tokens=TOKENS))
    with pytest.raises(InvalidInputError, match="no place in a buffer of 32"):
        cache.room(first_token, num_tokens)


async def loaded_from(stored, encoding):
    """The stored context through a loader."""
    source = StoreSource(open_store(str(stored.root)))
    try:
        loader = ContextLoader(stored.model, stored.profile, source, COSTS, lambda *_, **__: None)
        controller, clock = make_controller(f"fixed:{encoding}", [encoding]), StageClock(time.monotonic())
        return await loader.load(stored.manifest.context_key, controller, [encoding], 60.0, clock)
    finally:
        await source.close()


@pytest.mark.parametrize("encoding", ["raw", "cachegen-0"])
def test_a_loader_decodes_into_its_cache_without_a_copy(encoding, tmp_path, monkeypatch):
    stored = store_context(tmp_path)
    monkeypatch.setattr(KVCache, "write", None)
    loaded = asyncio.run(loaded_from(stored, encoding))

    assert set(loaded.chunk_sources) == {encoding}
    if encoding == "raw":
        assert same_bits(loaded.cache.chunk(0, 56), stored.cache.chunk(0, 56))


def test_a_context_stored_in_another_dtype_is_cast_to_the_models(tmp_path):
    def as_float16(cache):
        narrow = KVCache(cache.shape, torch.float16, "cpu", cache.num_tokens, cache.model_fingerprint)
        narrow.append(cache.chunk(0, cache.num_tokens), cache.token_ids)
        return narrow

    stored = store_context(tmp_path / "wide")
    stored.root = tmp_path / "narrow"
    narrow = as_float16(stored.cache)
    stored.manifest = store_kv(str(stored.root), stored.model, narrow, ["raw"], stored.profile, 16)
    loaded = asyncio.run(loaded_from(stored, "raw"))

    assert set(loaded.chunk_sources) == {"raw"}
    assert loaded.cache.dtype == torch.float32
    assert torch.equal(loaded.cache.chunk(0, 56), narrow.chunk(0, 56).float())
