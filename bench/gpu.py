"""Speed and memory of the GPU kernels: ``python -m bench.gpu --json FILE``, from the project's root.

Prints and writes GB/s of fp16 output that batches of chunks encode from and decode to on one GPU, beside a copy on the
same device in the same run, and the memory that decoding takes beside its output. Streams and values are first compared
with those of the CPU's kernels, bit for bit. Rows of batches time the kernels alone, rows of containers what
``encode_chunk`` and ``decode_chunk`` do with one chunk, exact tokens and steps of tokens included. The data are
correlated noise in the shape of a 135M model's cache.

This script has not run on a GPU yet; its batches are tested without one (``tests/cachegen/test_gpu_bench.py``).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import torch

from bench.gpu_codecs import CachegenBatch, TransformBatch
from cachegen.chunking import KEY_BYTES
from cachegen.codecs.base import CodecTables
from cachegen.codecs.cachegen import as_rows
from cachegen.container import ChunkIdentity
from cachegen.encoding import Encoding
from cachegen.kernels import get_backend
from cachegen.kv import KVShape
from cachegen.pipeline import decode_chunk, encode_chunk
from cachegen.profile import Profile
from cachegen.profile_builder import ProfileBuilder

SHAPE = KVShape(30, 3, 64)
TOKENS = 512
CACHEGEN_LEVEL, TRANSFORM_LEVEL = 1, 3
BATCHES = (1, 4, 16, 64)
CALIBRATION_TOKENS = 4096
# Directions that a token's keys and values move along, of all that they could.
DIRECTIONS = 4096
REPEATS = 10


def correlated(shape: KVShape, tokens: int, seed: int) -> torch.Tensor:
    """A chunk tensor in float16 whose channels move together, as a real cache's do."""
    size = shape.num_layers * 2 * shape.channels
    # the directions belong to the model, not to the text
    mixing = torch.randn(DIRECTIONS, size, generator=torch.Generator().manual_seed(0))
    strength = torch.logspace(0, -2, DIRECTIONS)[:, None]
    rng = torch.Generator().manual_seed(seed)
    x = torch.randn(tokens, DIRECTIONS, generator=rng) @ (mixing * strength)
    x += 0.02 * torch.randn(tokens, size, generator=rng)
    shaped = x.view(tokens, shape.num_layers, 2, shape.num_kv_heads, shape.head_dim).permute(1, 2, 0, 3, 4)
    return shaped.contiguous().half()


def profile_for(shape: KVShape) -> Profile:
    """Profile calibrated on the same kind of data."""
    builder = ProfileBuilder(shape, bytes(16))
    builder.add(correlated(shape, CALIBRATION_TOKENS, seed=1))
    return builder.build()


class Container:
    """One chunk at the start of its context by the library's own calls: container, exact tokens and steps included."""

    def __init__(self, profile: Profile, encoding: Encoding) -> None:
        self._profile, self._encoding = profile, encoding
        self._identity = ChunkIdentity(profile.model_fingerprint, profile.hash, bytes(KEY_BYTES), 0, 0)

    def encode(self, kv: torch.Tensor) -> bytes:
        """On the CPU, which is all that ``encode_chunk`` does."""
        return encode_chunk(kv, self._encoding, self._identity, self._profile, tokens_behind=TOKENS)

    def decode(self, coded: bytes, out: torch.Tensor) -> None:
        """From the host's memory to ``out`` on the device."""
        decode_chunk(coded, self._profile, self._identity, out=out)


def check_against_cpu(batch: CachegenBatch, kv: torch.Tensor, tables: CodecTables) -> None:
    """Stop unless the first chunk's symbols, streams and values are those of the CPU's kernels."""
    numba = get_backend("numba")
    quantized = numba.quantize(as_rows(kv[0].cpu()), CACHEGEN_LEVEL)
    expected = numba.encode_streams(quantized.deltas, tables.deltas[CACHEGEN_LEVEL])
    coded = batch.encode(kv[:1])
    if not np.array_equal(coded.deltas.words.cpu().numpy(), expected.words):
        sys.exit("the GPU's streams are not the CPU's")
    out = torch.empty_like(kv[:1])
    batch.decode(coded, out)
    values = torch.empty(SHAPE.rows, *kv.shape[3:], dtype=torch.float16)
    numba.dequantize(quantized, coded.bins.cpu().numpy(), values)
    if not torch.equal(out.cpu().view_as(values), values):
        sys.exit("the GPU's values are not the CPU's")


def seconds(work: Callable[[], object]) -> float:
    """Median time of one call, the device idle before and after it; the first two, which compile, are not counted."""
    times = []
    for _ in range(REPEATS + 2):
        torch.cuda.synchronize()
        start = perf_counter()
        work()
        torch.cuda.synchronize()
        times.append(perf_counter() - start)
    return median(times[2:])


def measure(
    encode: Callable[[torch.Tensor], Any], decode: Callable[[Any, torch.Tensor], None], source: torch.Tensor
) -> dict[str, float]:
    """Rates and memory of one codec on a tensor."""
    coded = encode(source)
    out = torch.empty_like(source)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    decode(coded, out)
    torch.cuda.synchronize()
    extra = torch.cuda.max_memory_allocated() - before
    size = out.numel() * out.element_size()
    times = {
        "encode": seconds(lambda: encode(source)),
        "decode": seconds(lambda: decode(coded, out)),
        "copy": seconds(lambda: out.copy_(source)),
    }
    rates = {f"{name}_gb_s": round(size / time / 1e9, 3) for name, time in times.items()}
    return {"output_bytes": size, **rates, "extra_bytes": extra}


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, required=True, help="where the result is written")
    path = parser.parse_args().json
    if not torch.cuda.is_available():
        sys.exit("bench.gpu: PyTorch finds no CUDA device here")
    device = torch.device("cuda")
    profile = profile_for(SHAPE)
    tables = profile.tables
    kv = correlated(SHAPE, TOKENS, seed=2).to(device)
    cachegen = CachegenBatch(tables, SHAPE, TOKENS, CACHEGEN_LEVEL, device)
    transform = TransformBatch(tables, TOKENS, TRANSFORM_LEVEL, device)
    check_against_cpu(cachegen, kv[None], tables)
    rows: list[dict[str, object]] = []
    for chunks in BATCHES:
        separate = kv.expand(chunks, *kv.shape).contiguous()
        one_cache = kv.permute(1, 0, 3, 2, 4).repeat(1, 1, 1, chunks, 1)
        for codec, batch, source in (("cachegen", cachegen, separate), ("transform", transform, one_cache)):
            rows.append({"codec": codec, "chunks": chunks, **measure(batch.encode, batch.decode, source)})
            sys.stdout.write(json.dumps(rows[-1]) + "\n")
    for encoding in (Encoding("cachegen", CACHEGEN_LEVEL), Encoding("transform", TRANSFORM_LEVEL)):
        call = Container(profile, encoding)
        rows.append({"codec": f"{encoding.codec} containers", "chunks": 1, **measure(call.encode, call.decode, kv)})
        sys.stdout.write(json.dumps(rows[-1]) + "\n")
    result = {"schema": 1, "device": torch.cuda.get_device_name(), "torch": torch.__version__, "rows": rows}
    path.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
