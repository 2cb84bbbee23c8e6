"""What users of earlier CacheGen codecs met, and what its published code gets wrong: each is shown not to happen here.

Cases that other files' tests cover are not repeated; docs/known-failures.md lists all of them with their tests.
"""

import hashlib
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from checks import IDENTITY, identity_of, make_chunk, make_profile, profile_of, same_bits
from tiny_models import VOCABULARY, random_tokens, tiny_llama
from transformers import DeepseekV3Config, DeepseekV3ForCausalLM

from cachegen import (
    HeldOutRow,
    InvalidInputError,
    KVShape,
    LanguageModel,
    MismatchError,
    ProfileBuilder,
    QualityError,
    UnsupportedModelError,
    calculate_kv,
    check_held_out,
    decode_chunk,
    encode_chunk,
    load_profile,
    parse_encoding,
    require_quality,
    store_kv,
)
from cachegen.codecs import CODECS
from cachegen.codecs.streams import varint_bytes
from cachegen.container import unpack
from cachegen.encoding import ENCODINGS, Encoding
from cachegen.kernels import get_backend
from cachegen.manifest import chunk_name

ROOT = Path(__file__).parent.parent.parent
GOLDEN = ROOT / "tests" / "golden" / "v1"


@pytest.fixture(scope="module")
def model_rows():
    """A model's encodings from lossless to coarse, measured on text that its profile was not made from."""
    model = tiny_llama()
    builder = ProfileBuilder(model.shape, model.fingerprint)
    builder.add(calculate_kv(model, random_tokens(200, seed=50)).chunk(0, 200))
    encodings = [Encoding("raw"), Encoding("quant8"), Encoding("cachegen", 4)]
    return check_held_out(model, builder.build(), random_tokens(320), encodings)


def test_encodings_that_change_what_the_model_says_are_refused(model_rows):
    """LMCache #717: a benchmark's accuracy fell on cached data, and nothing had checked the codec on that model."""
    raw, quant8, coarse = (row.kl for row in model_rows)
    assert raw < quant8 < coarse

    require_quality(model_rows, coarse)
    require_quality(model_rows[:1], 0.0)
    with pytest.raises(QualityError, match=r"above .* nats: cachegen-4 [0-9.e-]+$"):
        require_quality(model_rows, quant8)
    with pytest.raises(QualityError, match=r"quant8 .*, cachegen-4"):
        require_quality(model_rows, quant8 / 2)


def test_a_divergence_that_is_no_number_is_not_taken_for_none(model_rows):
    """LMCache #717: a check that a broken cache passes would be no check."""
    broken = replace(model_rows[0], kl=float("nan"))
    with pytest.raises(QualityError, match="raw nan"):
        require_quality([broken], 1.0)
    with pytest.raises(InvalidInputError, match="0 or more"):
        require_quality(model_rows, float("nan"))
    with pytest.raises(InvalidInputError, match="got 0 "):
        require_quality([], 1.0)


def test_nan_logits_show_in_the_held_out_row():
    """LMCache #717: a cache that breaks the model must not be reported as one without any divergence."""
    model = tiny_llama(layers=1)
    builder = ProfileBuilder(model.shape, model.fingerprint)
    builder.add(calculate_kv(model, random_tokens(60)).chunk(0, 60))
    with torch.no_grad():
        model._model.lm_head.weight[:] = float("nan")
    [row] = check_held_out(model, builder.build(), random_tokens(280), [Encoding("raw")])

    assert isinstance(row, HeldOutRow)
    assert row.kl != row.kl


# Decodes golden containers, then encodes what it decoded; prints the SHA-256 of tensors and of containers.
SECOND_PROCESS = """
import hashlib, json, sys, torch
from pathlib import Path
from cachegen import decode_chunk, encode_chunk, load_profile, parse_encoding

folder = Path(sys.argv[1])
profile = load_profile(folder / "profile.safetensors")
source = decode_chunk((folder / "raw-t23.encoded").read_bytes(), None)
digests = {}
for name in sys.argv[2:]:
    decoded = decode_chunk((folder / f"{name}-t23.encoded").read_bytes(), profile)
    again = encode_chunk(source.kv, parse_encoding(name), source.identity, profile)
    parts = (decoded.kv.flatten().view(torch.uint8).numpy().tobytes(), again)
    digests[name] = [hashlib.sha256(part).hexdigest() for part in parts]
print(json.dumps(digests))
"""


def test_another_process_reads_and_writes_the_same_however_often():
    """LMCache #326: the second run with the codec gave garbage text."""
    names = [str(encoding) for encoding in ENCODINGS]
    command = [sys.executable, "-c", SECOND_PROCESS, GOLDEN, *names]
    # the other way round in the second one, so that neither sees what the other saw before
    runs = [
        subprocess.run([*command[:4], *order], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        for order in (names, names[::-1])
    ]
    first, second = map(json.loads, runs)
    profile = load_profile(GOLDEN / "profile.safetensors")
    source = decode_chunk((GOLDEN / "raw-t23.encoded").read_bytes(), None)

    assert first == second
    for name in names * 3:
        kv = decode_chunk((GOLDEN / f"{name}-t23.encoded").read_bytes(), profile).kv
        data = encode_chunk(source.kv, parse_encoding(name), source.identity, profile)
        parts = (kv.flatten().view(torch.uint8).numpy().tobytes(), data)
        assert [hashlib.sha256(part).hexdigest() for part in parts] == first[name]


@pytest.mark.parametrize("encoding", ENCODINGS, ids=str)
def test_the_reader_says_where_the_tensor_goes_and_the_bytes_do_not(encoding):
    """LMCache #83: a chunk written on one device could not be read on another. A container names none."""
    kv = make_chunk()
    profile = profile_of(kv)
    data = encode_chunk(kv, encoding, identity_of(profile), profile)

    assert decode_chunk(data, profile).kv.device == torch.device("cpu")
    assert decode_chunk(data, profile, device="meta").kv.device == torch.device("meta")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("encoding", ENCODINGS, ids=str)
def test_a_cache_on_a_gpu_gives_the_same_bytes_and_comes_back_to_it(encoding):
    """LMCache #83, with the device that it was about."""
    kv = make_chunk()
    profile = profile_of(kv)
    data = encode_chunk(kv.cuda(), encoding, identity_of(profile), profile)

    assert data == encode_chunk(kv, encoding, identity_of(profile), profile)
    back = decode_chunk(data, profile, device="cuda").kv
    assert back.is_cuda
    assert same_bits(back.cpu(), decode_chunk(data, profile).kv)


@pytest.mark.parametrize("encoding", ENCODINGS, ids=str)
def test_a_model_of_any_depth_is_coded_by_the_shape_in_its_header(encoding):
    """LMCache #241: a model of 28 layers met a table of 32 that went by its name. Here no name is asked for."""
    kv = make_chunk(layers=28, tokens=12, heads=2, dim=4)
    profile = make_profile(28, 2, 4)
    data = encode_chunk(kv, encoding, identity_of(profile), profile)

    assert unpack(data).layout.shape == KVShape(28, 2, 4)
    assert decode_chunk(data, profile).kv.shape == kv.shape
    if CODECS[encoding.codec].uses_tables:
        other = make_profile(32, 2, 4)
        with pytest.raises(MismatchError, match=r"num_layers=28.*num_layers=32"):
            encode_chunk(kv, encoding, identity_of(other), other)


def test_reported_sizes_are_those_on_disk_and_smaller(tmp_path):
    """LMCache #2361, #1817: with the codec on, the folder was as large as without it."""
    model = tiny_llama()
    cache = calculate_kv(model, random_tokens(120))
    builder = ProfileBuilder(model.shape, model.fingerprint)
    builder.add(cache.chunk(0, 120))
    names = ["raw", "quant8", "cachegen-3"]
    manifest = store_kv(str(tmp_path), model, cache, names, builder.build(), chunk_tokens=50)

    totals = dict.fromkeys(names, 0)
    for chunk in manifest.chunks:
        for name, size_bytes in chunk.encodings.items():
            assert (tmp_path / chunk_name(chunk.key, name)).stat().st_size == size_bytes
            totals[name] += size_bytes
    assert totals["cachegen-3"] < totals["quant8"] < totals["raw"]


def test_multi_head_latent_attention_is_refused_by_name():
    """LMCache #1081, #364, #2774, #2951: caches of this kind met shape errors deep inside the codec."""
    config = DeepseekV3Config(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        q_lora_rank=16,
        kv_lora_rank=16,
        qk_rope_head_dim=8,
        qk_nope_head_dim=16,
        v_head_dim=16,
        first_k_dense_replace=2,
        max_position_embeddings=64,
        pad_token_id=0,
        eos_token_id=None,
    )
    with pytest.raises(UnsupportedModelError, match=r"deepseek .*multi-head latent attention"):
        LanguageModel(DeepseekV3ForCausalLM(config).eval(), None, "deepseek")
    latent = torch.zeros((2, 1, 8, 1, 24))
    with pytest.raises(InvalidInputError, match=r"must be \(num_layers, 2, num_tokens"):
        encode_chunk(latent, Encoding("raw"), IDENTITY, None)


@pytest.mark.parametrize("level", range(5))
def test_all_but_symbols_of_a_256_token_chunk_costs_a_fiftieth_of_a_bit(level):
    """Published code: tables, lengths and termination cost 2.2 bits an element at LMCache's 256 tokens a chunk."""
    kv = make_chunk(layers=2, tokens=256, heads=8, dim=128)
    builder = ProfileBuilder(KVShape(2, 8, 128), IDENTITY.model_fingerprint, "not asked for")
    builder.add(kv)
    profile = builder.build()
    data = encode_chunk(kv, Encoding("cachegen", level), identity_of(profile), profile)
    backend, tables = get_backend("numba"), profile.tables
    q = backend.quantize(kv.flatten(3).flatten(0, 1).float().numpy(), level)
    payload = 0
    for symbols, table in ((q.anchors, tables.anchors), (q.deltas, tables.deltas[level])):
        coded = backend.encode_streams(symbols, table)
        payload += 2 * len(coded.words) + int(varint_bytes(coded.escapes).sum())

    assert 8 * (len(data) - payload) / kv.numel() < 0.02
