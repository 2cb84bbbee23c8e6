"""Builders, checks and hostile byte editors that the codec tests share."""

import struct
from dataclasses import replace
from functools import cache

import torch
import xxhash

from cachegen.container import ChunkIdentity, pack, unpack
from cachegen.kernels import get_backend
from cachegen.kv import KVShape, layout_of
from cachegen.profile_builder import ProfileBuilder
from cachegen.token_moments import TokenFeatures

IDENTITY = ChunkIdentity(
    model_fingerprint=bytes(range(16)),
    profile_hash=bytes(range(32)),
    chunk_key=bytes(range(100, 132)),
    chunk_index=3,
    first_token=1536,
)
SECTION_TABLE_AT = 144
SECTION_ENTRY_BYTES = 32


def make_chunk(layers=3, tokens=23, heads=2, dim=5, dtype=torch.bfloat16, seed=0):
    """A chunk whose channels differ in size and whose tokens drift, as a real KV cache's do."""
    rng = torch.Generator().manual_seed(seed)
    shape = (layers, 2, tokens, heads, dim)
    channel_size = torch.exp(torch.randn((layers, 2, 1, heads, dim), generator=rng))
    drift = torch.randn((layers, 2, 1, heads, dim), generator=rng)
    return ((drift + 0.5 * torch.randn(shape, generator=rng)) * channel_size).to(dtype)


def make_features(entries=40, own=6, previous=4, seed=0):
    """Features of the tokens of a vocabulary, drawn at random."""
    rng = torch.Generator().manual_seed(seed)
    tables = (torch.randn((entries, size), generator=rng).half() for size in (own, previous))
    return TokenFeatures(*tables)


def make_tokens(count, entries=40, seed=0):
    """Tokens of a vocabulary, drawn at random."""
    return torch.randint(entries, (count,), generator=torch.Generator().manual_seed(seed)).tolist()


@cache
def make_profile(layers=3, heads=2, dim=5, tokens=60):
    """A profile of chunks like ``make_chunk``'s, from too few tokens to hold every value; it has a codebook."""
    builder = ProfileBuilder(KVShape(layers, heads, dim), IDENTITY.model_fingerprint, features=make_features())
    # the second has the channels of most tests' chunks: nothing of these would be coded with units of more channels
    for seed in (1, 0):
        builder.add(make_chunk(layers, tokens, heads, dim, seed=seed), make_tokens(tokens, seed=seed))
    return builder.build()


def profile_of(kv):
    """The profile for a chunk's shape."""
    shape = layout_of(kv).shape
    return make_profile(shape.num_layers, shape.num_kv_heads, shape.head_dim)


def identity_of(profile, **fields):
    """An identity that names a profile."""
    return replace(IDENTITY, profile_hash=profile.hash, **fields)


def same_bits(a, b):
    """Whether two tensors agree in dtype, shape and every bit, the sign of zero included."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    return torch.equal(a.contiguous().flatten().view(torch.uint8), b.contiguous().flatten().view(torch.uint8))


def backends():
    """The reference and the backend that users get."""
    return get_backend("reference"), get_backend("numba")


def reseal(data):
    """The container with its checksums made right again, as a forger would."""
    data = bytearray(data)
    (num_sections,) = struct.unpack_from("<H", data, 34)
    end = SECTION_TABLE_AT + num_sections * SECTION_ENTRY_BYTES
    for at in range(SECTION_TABLE_AT, min(end, len(data) - SECTION_ENTRY_BYTES), SECTION_ENTRY_BYTES):
        offset, length = struct.unpack_from("<QQ", data, at + 8)
        struct.pack_into("<Q", data, at + 24, xxhash.xxh3_64_intdigest(bytes(data[offset : offset + length])))
    if end + 8 <= len(data):
        struct.pack_into("<Q", data, end, xxhash.xxh3_64_intdigest(bytes(data[:end])))
    return bytes(data)


def with_field(data, offset, form, value):
    """The container with one header field replaced and its checksums made right."""
    data = bytearray(data)
    struct.pack_into("<" + form, data, offset, value)
    return reseal(data)


def with_section(data, section_id, body):
    """The container with one section replaced, or removed where ``body`` is None."""
    container = unpack(data)
    sections = {key: bytes(view) for key, view in container.sections.items()}
    if body is None:
        del sections[section_id]
    else:
        sections[section_id] = body
    return pack(container.encoding, container.layout, container.identity, sections)


def section(data, section_id):
    """One section of a container, to be edited."""
    return bytearray(unpack(data).sections[section_id])
