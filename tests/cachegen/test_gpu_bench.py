"""What the GPU bench measures is right: batches decode to what the codecs make of each chunk."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from checks import backends, make_chunk, make_profile, same_bits
from triton_device import DEVICE, MARK, many_lanes  # noqa: F401 - a fixture

from bench.gpu import Container
from bench.gpu_codecs import CachegenBatch, TransformBatch
from cachegen.codecs.cachegen import as_rows
from cachegen.encoding import Encoding
from cachegen.kernels import anchor
from cachegen.kernels.uniform import GRID_STEPS, LEVEL_PLACES
from cachegen.pipeline import decode_chunk

pytestmark = [*MARK, pytest.mark.usefixtures("many_lanes")]
LAYERS, HEADS, DIM, TOKENS = 1, 2, 4, 12


def chunks():
    parts = [make_chunk(LAYERS, TOKENS, HEADS, DIM, torch.float16, seed) for seed in (0, 1)]
    return torch.stack(parts).to(DEVICE)


def test_a_batch_of_the_papers_codec_decodes_to_the_bits_of_each_chunk():
    profile, level, kv = make_profile(LAYERS, HEADS, DIM), 2, chunks()
    batch = CachegenBatch(profile.tables, profile.shape, TOKENS, level, DEVICE)
    out = torch.empty_like(kv)
    batch.decode(batch.encode(kv), out)

    for chunk, found in zip(kv, out, strict=True):
        quantized = backends()[1].quantize(as_rows(chunk.cpu()), level)
        wanted = torch.empty(2 * LAYERS, TOKENS, HEADS, DIM, dtype=torch.float16)
        backends()[1].dequantize(quantized, anchor.bins(quantized.sigmas, level), wanted)
        assert same_bits(found.cpu().view_as(wanted), wanted)


@pytest.mark.parametrize("level", [0, 3])
def test_a_batch_of_the_transform_decodes_within_what_its_level_quantizes(level):
    profile, kv = make_profile(LAYERS, HEADS, DIM), chunks()
    # (chunks, layers, 2, tokens, heads, dim) to (2, layers, heads, chunks * tokens, dim)
    cache = kv.permute(2, 1, 4, 0, 3, 5).reshape(2, LAYERS, HEADS, 2 * TOKENS, DIM)
    batch = TransformBatch(profile.tables, TOKENS, level, DEVICE)
    out = torch.empty_like(cache)
    batch.decode(batch.encode(cache), out)

    before, after = (batch._forward(each) for each in (cache, out))
    for unit in profile.tables.transform.units:
        wanted, found = unit.of(before), unit.of(after)
        error = (found - wanted) @ batch.bases[unit.index].T
        # half a step, and products in bfloat16
        assert error.abs().max() <= GRID_STEPS[LEVEL_PLACES[level]] / 2 + 2**-6 * float(wanted.abs().max())


@pytest.mark.parametrize("encoding", [Encoding("cachegen", 1), Encoding("transform", 3)], ids=str)
def test_a_container_decodes_to_what_the_library_makes_of_it(encoding):
    profile, kv = make_profile(LAYERS, HEADS, DIM), chunks()[0]
    call = Container(profile, encoding)
    out = torch.empty_like(kv)
    data = call.encode(kv)
    call.decode(data, out)

    assert torch.equal(out, decode_chunk(data, profile, device=DEVICE).kv)
    exact = 4 if encoding.codec == "transform" else 0
    assert same_bits(out[:, :, :exact].cpu(), kv[:, :, :exact].cpu())


def test_the_bench_says_that_it_needs_a_gpu(tmp_path):
    command = [sys.executable, "-m", "bench.gpu", "--json", tmp_path / "result.json"]
    root = Path(__file__).parent.parent.parent
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert "no CUDA device" in done.stderr
