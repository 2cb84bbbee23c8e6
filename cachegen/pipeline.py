"""From a chunk tensor to container bytes and back: the only file that knows the order of the steps."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass, fields

import torch

from cachegen.allocation import memory_for
from cachegen.chunking import KEY_BYTES, MODEL_FINGERPRINT_BYTES, TokenIds, chunk_keys, chunk_spans
from cachegen.codecs import CODECS, decoder_for
from cachegen.codecs.transform import TransformCodec, transform_of
from cachegen.container import ChunkIdentity, pack, unpack
from cachegen.encoding import ENCODINGS, Encoding
from cachegen.errors import FormatError, InvalidInputError, MismatchError
from cachegen.kv import KV_DTYPES, ChunkLayout, check_kv, layout_of
from cachegen.profile import Profile
from cachegen.profile_builder import ProfileBuilder

# Any context's; distances stay exact in float64.
MAX_TOKENS_BEHIND = 1 << 48


@dataclass(frozen=True)
class DecodedChunk:
    """A chunk as read back, ``kv`` on the device that was asked for."""

    kv: torch.Tensor
    encoding: Encoding
    identity: ChunkIdentity


def context_identities(
    token_ids: TokenIds, chunk_tokens: int, model_fingerprint: bytes, profile_hash: bytes
) -> list[tuple[tuple[int, int], ChunkIdentity]]:
    """Span ``(first_token, end_token)`` and identity of each chunk of a context."""
    spans = chunk_spans(len(token_ids), chunk_tokens)
    keys = chunk_keys(token_ids, chunk_tokens, model_fingerprint, profile_hash)
    return [
        ((first, end), ChunkIdentity(model_fingerprint, profile_hash, key, index, first))
        for index, ((first, end), key) in enumerate(zip(spans, keys, strict=True))
    ]


def encode_chunk(
    kv: torch.Tensor,
    encoding: Encoding,
    identity: ChunkIdentity,
    profile: Profile | None,
    tokens_behind: int | None = None,
) -> bytes:
    """Encode one chunk.

    Parameters
    ----------
    kv : torch.Tensor
        ``(num_layers, 2, num_tokens, num_kv_heads, head_dim)``; float32, float16 or bfloat16; any device.
    encoding : Encoding
        Codec and level.
    identity : ChunkIdentity
        Recorded in the container as it is.
    profile : Profile or None
        Needed by ``cachegen`` and ``transform`` alone; its hash must be the identity's.
    tokens_behind : int, optional
        How many tokens of its context follow the chunk. ``transform`` then codes those near the end more finely: what
        follows a context looks at its end most. Default: unknown, and all tokens are coded alike.

    Returns
    -------
    bytes
        A container, see docs/format.md.

    Raises
    ------
    InvalidInputError, NonFiniteError
        The tensor cannot be coded, or the codec needs a profile and has none.
    MismatchError
        The profile belongs to another model, or its hash is not the identity's.
    UnsupportedModelError
        ``transform`` cannot code this model, or not at this position.
    MemoryLimitError
        There is no memory for it.
    """
    shape = check_kv(kv)
    if tokens_behind is not None and not (type(tokens_behind) is int and 0 <= tokens_behind <= MAX_TOKENS_BEHIND):
        raise InvalidInputError(f"tokens_behind is {tokens_behind!r}, must be a whole number in 0..{MAX_TOKENS_BEHIND}")
    codec = CODECS[encoding.codec]
    tables = None
    if codec.uses_tables:
        used = _profile_for(profile, encoding, identity)
        if used.shape != shape:
            raise MismatchError(f"shape: KV tensor has {shape}, profile has {used.shape}")
        tables = used.tables
    layout = layout_of(kv)
    with memory_for(f"encoding {layout.num_tokens} tokens", layout.num_bytes):
        sections = codec.encode(
            kv.detach().cpu().resolve_neg(), encoding.level, tables, identity.first_token, tokens_behind
        )
        return pack(encoding, layout, identity, sections)


def decode_chunk(
    data: bytes | memoryview,
    profile: Profile | None,
    expect: ChunkIdentity | None = None,
    device: str | torch.device | None = None,
    out: torch.Tensor | None = None,
) -> DecodedChunk:
    """Decode one chunk; holds no lock of the interpreter for long, so a worker thread may call it.

    Parameters
    ----------
    data : bytes or memoryview
        A container.
    profile : Profile or None
        The profile that it was encoded with; None will do for codecs without tables.
    expect : ChunkIdentity or None
        What the container must say about itself.
    device : str or torch.device, optional
        Where the tensor goes; default: where ``out`` is, or else the CPU. On a GPU that the codec has kernels for it is
        decoded there.
    out : torch.Tensor, optional
        Receives the tensor, which then is ``out`` itself: of the chunk's shape and dtype, such as a part of a cache.
        Elements of a head lie next to each other, K and V of all layers equally far apart. After an error its content
        is undefined. Default: a new tensor.

    Raises
    ------
    FormatError, ChecksumError, VersionError
        The bytes are not a container that this release can read.
    MismatchError
        A sound container of another chunk, context, model or profile, or of another shape or dtype than ``out``; the
        text names the field.
    InvalidInputError
        The codec needs a profile and has none, ``data`` is no contiguous buffer, or ``out`` is on another device or
        cannot be written to.
    MemoryLimitError
        There is no memory for the tensor.
    """
    container = unpack(_container_bytes(data))
    if expect is not None:
        _check_identity(container.identity, expect)
    layout = container.layout
    if out is not None:
        _check_out(out, layout, device)
        device = out.device
    device = torch.device("cpu" if device is None else device)
    codec = decoder_for(container.encoding.codec, device)
    tables = None
    if codec.uses_tables:
        used = _profile_for(profile, container.encoding, container.identity)
        if used.shape != layout.shape:
            raise FormatError(f"container says {layout.shape}, its profile has {used.shape}")
        tables = used.tables
    first_token = container.identity.first_token
    # kernels run on the current GPU
    on_device = torch.cuda.device(device) if device.type == "cuda" else nullcontext()
    with on_device, memory_for(f"the decoded tensor of {layout.num_tokens} tokens", layout.num_bytes):
        kv = codec.decode(container.sections, layout, container.encoding.level, tables, first_token, out)
        if out is None:
            kv = kv.to(device)
        elif kv is not out:
            kv = out.copy_(kv)
    return DecodedChunk(kv, container.encoding, container.identity)


def check_encodable(encodings: Iterable[Encoding], num_tokens: int, profile: Profile) -> None:
    """Refuse, before anything is encoded, a context that some encoding cannot code.

    Raises
    ------
    UnsupportedModelError
        ``transform`` cannot code this model, or not as many tokens; the text says why.
    """
    if any(encoding.codec == TransformCodec.name for encoding in encodings):
        transform_of(profile.tables).rotary.check_span(num_tokens)


def warm_up() -> None:
    """Compile every kernel of the codecs, so that no request waits for it.

    Seconds on the first call on a machine; then Numba's cache on disk makes it a fraction of one.
    """
    kv = torch.arange(3 * 2 * 11 * 1 * 4, device="cpu").reshape(3, 2, 11, 1, 4).to(torch.bfloat16)
    builder = ProfileBuilder(check_kv(kv), bytes(MODEL_FINGERPRINT_BYTES))
    builder.add(kv)
    profile = builder.build()
    identity = ChunkIdentity(profile.model_fingerprint, profile.hash, bytes(KEY_BYTES), 0, 0)
    for encoding in ENCODINGS:
        for dtype in KV_DTYPES:
            decode_chunk(encode_chunk(kv.to(dtype.torch), encoding, identity, profile), profile, identity)


def _container_bytes(data: object) -> memoryview:
    try:
        return memoryview(data).cast("B")  # type: ignore[arg-type]  # what is no buffer is refused below
    except TypeError as error:
        kind = (
            "a memoryview whose bytes do not lie next to each other"
            if isinstance(data, memoryview)
            else repr(type(data).__name__)
        )
        raise InvalidInputError(f"a container must be bytes or a contiguous buffer, got {kind}") from error


def _check_out(out: torch.Tensor, layout: ChunkLayout, device: str | torch.device | None) -> None:
    given = layout_of(out)
    if device is not None and torch.empty(0, device=device).device != out.device:
        raise InvalidInputError(f"device: {device} is asked for, out is on {out.device}")
    for field, found, wanted in (
        ("shape", layout.tensor_shape, given.tensor_shape),
        ("dtype", layout.dtype.name, given.dtype.name),
    ):
        if found != wanted:
            raise MismatchError(f"{field}: container has {found}, out has {wanted}")
    layers, halves, *_, dims = out.stride()
    if dims != 1 or (layers != 2 * halves and len(out) > 1):
        raise InvalidInputError(f"out has strides {out.stride()}; the last must be 1, the first twice the second")
    if out.requires_grad:
        raise InvalidInputError("out needs gradients, which decoding has none of")


def _profile_for(profile: Profile | None, encoding: Encoding, identity: ChunkIdentity) -> Profile:
    if profile is None:
        raise InvalidInputError(f"encoding {encoding} needs a profile")
    pairs = {
        "profile hash": (identity.profile_hash, profile.hash),
        "model fingerprint": (identity.model_fingerprint, profile.model_fingerprint),
    }
    for field, (chunk_value, profile_value) in pairs.items():
        if chunk_value != profile_value:
            raise MismatchError(f"{field}: chunk has {chunk_value.hex()}, profile has {profile_value.hex()}")
    return profile


def _check_identity(found: ChunkIdentity, expected: ChunkIdentity) -> None:
    for field in fields(ChunkIdentity):
        values = [getattr(identity, field.name) for identity in (found, expected)]
        if values[0] != values[1]:
            shown = [value.hex() if isinstance(value, bytes) else value for value in values]
            raise MismatchError(f"{field.name}: container has {shown[0]}, expected {shown[1]}")
