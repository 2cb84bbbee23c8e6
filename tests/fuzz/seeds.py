"""What fuzzing starts from: golden bytes, and small chunks of awkward shapes in every encoding of the registry."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import torch
from checks import IDENTITY, SECTION_TABLE_AT

from cachegen.encoding import ENCODINGS, Encoding
from cachegen.manifest import Manifest, ManifestChunk, pack_manifest
from cachegen.pipeline import encode_chunk
from cachegen.profile import Profile, load_profile

GOLDEN = Path(__file__).parent.parent / "golden" / "v1"
# of one model: without a codebook, with one, with references too, and with bases in stages
_NAMES = ("profile", "profile-codebook", "profile-references", "profile-stages")
PROFILE_FILES = [GOLDEN / f"{name}.safetensors" for name in _NAMES]
PROFILE, *_ = PROFILES = [load_profile(path) for path in PROFILE_FILES]
# tokens, position of the first one, dtype: no delta, sinks beside coded tokens, a full group, a tail of one
CHUNKS = ((1, 1536, torch.float32), (6, 2, torch.bfloat16), (10, 0, torch.float16), (21, 20, torch.bfloat16))
# Of a context's end, so that steps differ, and of which the second half repeats the first, so that references are used.
REPEATING = (24, 30, torch.float32)


def make_kv(num_tokens: int, dtype: torch.dtype) -> torch.Tensor:
    """A chunk of the golden profile's model, alike its calibration, with one value that must escape."""
    rng = torch.Generator().manual_seed(num_tokens)
    sizes = torch.tensor([0.3, 1.0, 4.0])
    kv = torch.randn(PROFILE.shape.chunk_shape(num_tokens), generator=rng) * sizes + sizes
    if num_tokens == REPEATING[0]:
        kv[:, :, num_tokens // 2 :] = kv[:, :, : num_tokens // 2] * 1.01
    kv[0, 1, -1, 0, 0] = 77.0
    return kv.to(dtype)


@cache
def encode(num_tokens: int, first_token: int, dtype: torch.dtype, encoding: Encoding, *, which: int) -> bytes:
    """One small container, of one of the profiles."""
    profile = PROFILES[which]
    identity = replace(IDENTITY, profile_hash=profile.hash, first_token=first_token)
    tokens_behind = 200 if num_tokens == REPEATING[0] else None
    return encode_chunk(make_kv(num_tokens, dtype), encoding, identity, profile, tokens_behind)


def containers() -> list[bytes]:
    """Containers of every encoding, those of the transform with each profile."""
    small = [encode(*chunk, encoding, which=0) for encoding in ENCODINGS for chunk in CHUNKS]
    levels = [encoding for encoding in ENCODINGS if encoding.codec == "transform"]
    small += [encode(*chunk, encoding, which=1) for encoding in levels[::3] for chunk in CHUNKS]
    for which in (2, 3):
        small += [encode(*chunk, encoding, which=which) for encoding in levels[::3] for chunk in (*CHUNKS, REPEATING)]
    return [path.read_bytes() for path in sorted(GOLDEN.glob("*.encoded"))] + small


def profile_named_by(data: bytes) -> Profile:
    """The profile whose hash a container's header has; the plainest if it has none of them."""
    return next((profile for profile in PROFILES if profile.hash in data[:SECTION_TABLE_AT]), PROFILE)


def profiles() -> list[bytes]:
    """Profile files."""
    return [path.read_bytes() for path in PROFILE_FILES]


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
