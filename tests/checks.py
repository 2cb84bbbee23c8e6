"""Builders and checks that the codec tests share."""

import torch

from cachegen.container import ChunkIdentity

IDENTITY = ChunkIdentity(
    model_fingerprint=bytes(range(16)),
    profile_hash=bytes(range(32)),
    chunk_key=bytes(range(100, 132)),
    chunk_index=3,
    first_token=1536,
)


def make_chunk(layers=3, tokens=23, heads=2, dim=5, dtype=torch.bfloat16, seed=0):
    """A chunk whose channels differ in size and whose tokens drift, as a real KV cache's do."""
    rng = torch.Generator().manual_seed(seed)
    shape = (layers, 2, tokens, heads, dim)
    channel_size = torch.exp(torch.randn((layers, 2, 1, heads, dim), generator=rng))
    drift = torch.randn((layers, 2, 1, heads, dim), generator=rng)
    return ((drift + 0.5 * torch.randn(shape, generator=rng)) * channel_size).to(dtype)


def same_bits(a, b):
    """Whether two tensors agree in dtype, shape and every bit, the sign of zero included."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    return torch.equal(a.contiguous().view(torch.uint8), b.contiguous().view(torch.uint8))
