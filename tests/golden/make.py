"""Writes the golden bytes that are missing; to be run on purpose, after a codec was added.

What is there stays as it is: bytes that a release has written are decoded by every later one.
"""

from pathlib import Path
from unittest.mock import patch

import torch

from cachegen import basis_fit
from cachegen.container import ChunkIdentity
from cachegen.encoding import ENCODINGS, Encoding
from cachegen.kv import KVShape
from cachegen.pipeline import decode_chunk, encode_chunk
from cachegen.profile import Profile, load_profile, save_profile
from cachegen.profile_builder import ProfileBuilder
from cachegen.token_moments import TokenFeatures

FOLDER = Path(__file__).parent / "v1"
SHAPE = KVShape(3, 1, 3)
FINGERPRINT = bytes(range(16))
KEY = bytes(range(32, 64))
# In the middle of the chunk of 23 tokens, the transform's step changes.
TOKENS_BEHIND = 200
# Of the transform with a codebook, with references too, and with bases in stages: the finest level, a common one and
# the coarsest.
SOME_LEVELS = (0, 3, 7)
# Place of the chunk of so many tokens, for these: one coded token, two sinks beside coded ones, coded ones alone.
FIRST_TOKEN = {1: 8, 23: 2, 64: 40}
VOCABULARY = 40


def make_chunk(num_tokens, seed):
    """Channels of unlike sizes, a zero token, an outlier that must escape, and both zeros."""
    rng = torch.Generator().manual_seed(seed)
    sizes = torch.tensor([0.3, 1.0, 4.0])
    kv = torch.randn(SHAPE.chunk_shape(num_tokens), generator=rng) * sizes + sizes
    kv[0, 0, num_tokens // 2] = 0
    kv[1, 1, -1, 0, 0] = 60.0
    kv[2, 0, 0, 0, 0] = -0.0
    return kv.to(torch.bfloat16)


def make_repeating_chunk(num_tokens, seed):
    """A chunk of which each quarter is the one before, but for a little noise, so that references pay."""
    rng = torch.Generator().manual_seed(seed)
    quarter = make_chunk(num_tokens // 4, seed).float()
    quarters = [quarter * (1 + 0.01 * torch.randn(quarter.shape, generator=rng)) for _ in range(4)]
    return torch.cat(quarters, dim=2).to(torch.bfloat16)


def make_references_profile():
    """A profile of a model in whose keys and values a token and the one before it show."""
    rng = torch.Generator().manual_seed(3)
    features = TokenFeatures(*(torch.randn((VOCABULARY, size), generator=rng).half() for size in (6, 4)))
    tokens = torch.randint(VOCABULARY, (1200,), generator=rng)
    kv = make_chunk(len(tokens), seed=1).float()
    for table, neighbours in ((features.own, tokens), (features.previous, tokens.roll(1))):
        shown = table[neighbours].float() @ torch.randn((table.shape[1], kv[:, :, 0].numel()), generator=rng)
        kv += shown.reshape(-1, 3, 2, 1, 3).permute(1, 2, 0, 3, 4) / 2
    builder = ProfileBuilder(SHAPE, FINGERPRINT, features=features)
    builder.add(kv, tokens.tolist())
    return builder.build()


def make_stages_profile():
    """The same, with bases of a block for each head."""
    with patch.object(basis_fit, "BLOCK_CHANNELS", 2 * SHAPE.head_dim):
        return make_references_profile()


def write_missing(name, kv, encoding, profile, index, first_token):
    """A container of a chunk and what it decodes to, unless it is there."""
    encoded = FOLDER / f"{name}-t{kv.shape[2]}.encoded"
    if encoded.exists():
        return
    identity = ChunkIdentity(FINGERPRINT, profile.hash, KEY, index, first_token)
    data = encode_chunk(kv, encoding, identity, profile, TOKENS_BEHIND)
    decoded = decode_chunk(data, profile).kv
    encoded.write_bytes(data)
    encoded.with_suffix(".decoded").write_bytes(decoded.view(torch.uint8).numpy().tobytes())


def load_or_make(path, make) -> Profile:
    """The profile, made where its file is missing."""
    if not path.exists():
        save_profile(make(), path)
    return load_profile(path)


def main():
    """Write the profiles, and for each chunk its containers and what each decodes to, where they are missing."""
    FOLDER.mkdir(exist_ok=True)
    # of releases whose profiles had no references, or no codebook either; this one makes no such profiles
    profile = load_profile(FOLDER / "profile.safetensors")
    with_codebook = load_profile(FOLDER / "profile-codebook.safetensors")
    with_references = load_or_make(FOLDER / "profile-references.safetensors", make_references_profile)
    in_stages = load_or_make(FOLDER / "profile-stages.safetensors", make_stages_profile)
    for index, num_tokens in enumerate((1, 23)):
        kv = make_chunk(num_tokens, seed=2)
        for encoding in ENCODINGS:
            write_missing(str(encoding), kv, encoding, profile, index, index)
        for level in SOME_LEVELS:
            encoding, first_token = Encoding("transform", level), FIRST_TOKEN[num_tokens]
            write_missing(f"codebook-{level}", kv, encoding, with_codebook, index, first_token)
            write_missing(f"references-{level}", kv, encoding, with_references, index, first_token)
            write_missing(f"stages-{level}", kv, encoding, in_stages, index, first_token)
    kv = make_repeating_chunk(64, seed=4)
    write_missing("raw", kv, Encoding("raw"), profile, 2, FIRST_TOKEN[64])
    for level in SOME_LEVELS:
        write_missing(f"references-{level}", kv, Encoding("transform", level), with_references, 2, FIRST_TOKEN[64])


if __name__ == "__main__":
    main()
