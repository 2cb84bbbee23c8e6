"""What fuzzing starts from: golden bytes, and small chunks of awkward shapes in every encoding of the registry."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import torch
from checks import IDENTITY

from cachegen.encoding import ENCODINGS, Encoding
from cachegen.manifest import Manifest, ManifestChunk, pack_manifest
from cachegen.pipeline import encode_chunk
from cachegen.profile import load_profile

GOLDEN = Path(__file__).parent.parent / "golden" / "v1"
PROFILE_FILE = GOLDEN / "profile.safetensors"
PROFILE = load_profile(PROFILE_FILE)
# tokens, position of the first one, dtype: no delta, sinks beside coded tokens, a full group, a tail of one
CHUNKS = ((1, 1536, torch.float32), (6, 2, torch.bfloat16), (10, 0, torch.float16), (21, 20, torch.bfloat16))


def make_kv(num_tokens: int, dtype: torch.dtype) -> torch.Tensor:
    """A chunk of the golden profile's model, alike its calibration, with one value that must escape."""
    rng = torch.Generator().manual_seed(num_tokens)
    sizes = torch.tensor([0.3, 1.0, 4.0])
    kv = torch.randn(PROFILE.shape.chunk_shape(num_tokens), generator=rng) * sizes + sizes
    kv[0, 1, -1, 0, 0] = 77.0
    return kv.to(dtype)


@cache
def encode(num_tokens: int, first_token: int, dtype: torch.dtype, encoding: Encoding) -> bytes:
    """One small container."""
    identity = replace(IDENTITY, profile_hash=PROFILE.hash, first_token=first_token)
    return encode_chunk(make_kv(num_tokens, dtype), encoding, identity, PROFILE)


def containers() -> list[bytes]:
    """Containers of every encoding, all of the golden profile."""
    small = [encode(*chunk, encoding) for encoding in ENCODINGS for chunk in CHUNKS]
    return [path.read_bytes() for path in sorted(GOLDEN.glob("*.encoded"))] + small


def profiles() -> list[bytes]:
    """Profile files."""
    return [PROFILE_FILE.read_bytes()]


def manifests() -> list[bytes]:
    """Manifests of one and of three chunks."""
    made = []
    for num_chunks in (1, 3):
        chunks = tuple(
            ManifestChunk(bytes([index]) * 32, 10 * index, 10 - index, {"raw": 9, "cachegen-1": 5})
            for index in range(num_chunks)
        )
        chunks = tuple(replace(chunk, num_tokens=10) for chunk in chunks[:-1]) + chunks[-1:]
        num_tokens = chunks[-1].first_token + chunks[-1].num_tokens
        shape = PROFILE.shape
        made.append(
            Manifest(
                chunks[-1].key,
                PROFILE.model_fingerprint,
                PROFILE.hash,
                num_tokens,
                10,
                shape.num_layers,
                shape.num_kv_heads,
                shape.head_dim,
                "bfloat16",
                chunks,
            )
        )
    return [pack_manifest(manifest) for manifest in made]
