"""Writes the golden bytes that are missing; to be run on purpose, after a codec was added.

What is there stays as it is: bytes that a release has written are decoded by every later one.
"""

from pathlib import Path

import torch

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
# Of the transform with a codebook: the finest level, a common one and the coarsest.
CODEBOOK_LEVELS = (0, 3, 7)
# Place of the chunk of so many tokens, for the codebook: one coded token, and two sinks beside coded ones.
CODEBOOK_FIRST_TOKEN = {1: 8, 23: 2}
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


def make_profile():
    """A profile without a codebook."""
    builder = ProfileBuilder(SHAPE, FINGERPRINT)
    builder.add(make_chunk(120, seed=1))
    return builder.build()


def make_codebook_profile():
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


def write_missing(name, num_tokens, encoding, profile, index, first_token):
    """A container of a chunk and what it decodes to, unless it is there."""
    encoded = FOLDER / f"{name}-t{num_tokens}.encoded"
    if encoded.exists():
        return
    identity = ChunkIdentity(FINGERPRINT, profile.hash, KEY, index, first_token)
    data = encode_chunk(make_chunk(num_tokens, seed=2), encoding, identity, profile, TOKENS_BEHIND)
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
    profile = load_or_make(FOLDER / "profile.safetensors", make_profile)
    with_codebook = load_or_make(FOLDER / "profile-codebook.safetensors", make_codebook_profile)
    for index, num_tokens in enumerate((1, 23)):
        for encoding in ENCODINGS:
            write_missing(str(encoding), num_tokens, encoding, profile, index, index)
        for level in CODEBOOK_LEVELS:
            encoding, first_token = Encoding("transform", level), CODEBOOK_FIRST_TOKEN[num_tokens]
            write_missing(f"codebook-{level}", num_tokens, encoding, with_codebook, index, first_token)


if __name__ == "__main__":
    main()
