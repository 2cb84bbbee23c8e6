"""Writes the golden bytes that are missing; to be run on purpose, after a codec was added.

What is there stays as it is: bytes that a release has written are decoded by every later one.
"""

from pathlib import Path

import torch

from cachegen.container import ChunkIdentity
from cachegen.encoding import ENCODINGS
from cachegen.kv import KVShape
from cachegen.pipeline import decode_chunk, encode_chunk
from cachegen.profile import load_profile, save_profile
from cachegen.profile_builder import ProfileBuilder

FOLDER = Path(__file__).parent / "v1"
SHAPE = KVShape(3, 1, 3)
FINGERPRINT = bytes(range(16))
KEY = bytes(range(32, 64))
# In the middle of the chunk of 23 tokens, the transform's step changes.
TOKENS_BEHIND = 200


def make_chunk(num_tokens, seed):
    """Channels of unlike sizes, a zero token, an outlier that must escape, and both zeros."""
    rng = torch.Generator().manual_seed(seed)
    sizes = torch.tensor([0.3, 1.0, 4.0])
    kv = torch.randn(SHAPE.chunk_shape(num_tokens), generator=rng) * sizes + sizes
    kv[0, 0, num_tokens // 2] = 0
    kv[1, 1, -1, 0, 0] = 60.0
    kv[2, 0, 0, 0, 0] = -0.0
    return kv.to(torch.bfloat16)


def main():
    """Write the profile, and for each chunk its containers and what each decodes to, where they are missing."""
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / "profile.safetensors"
    if not path.exists():
        builder = ProfileBuilder(SHAPE, FINGERPRINT)
        builder.add(make_chunk(120, seed=1))
        save_profile(builder.build(), path)
    profile = load_profile(path)
    for index, num_tokens in enumerate((1, 23)):
        identity = ChunkIdentity(FINGERPRINT, profile.hash, KEY, index, index)
        for encoding in ENCODINGS:
            name = f"{encoding}-t{num_tokens}"
            encoded = FOLDER / f"{name}.encoded"
            if encoded.exists():
                continue
            data = encode_chunk(make_chunk(num_tokens, seed=2), encoding, identity, profile, TOKENS_BEHIND)
            decoded = decode_chunk(data, profile).kv
            encoded.write_bytes(data)
            (FOLDER / f"{name}.decoded").write_bytes(decoded.view(torch.uint8).numpy().tobytes())


if __name__ == "__main__":
    main()
