"""From token ids to chunk spans and to content keys chained over the prefix.

A context is cut into chunks of ``chunk_tokens`` tokens; the last one keeps what is left, however short.
The key of a chunk identifies everything its KV depends on. With ``||`` for concatenation::

    key[-1] = SHA-256(b"cachegen chunk key 1\\0" || model_fingerprint (16 bytes) || profile_hash (32 bytes))
    key[i]  = SHA-256(key[i-1] || token ids of chunk i, each a little-endian uint32)

Every link hashes its predecessor (32 bytes) and then whole tokens, so a key fixes all tokens up to the end of
its chunk and every boundary between chunks before it. Two contexts share the keys of their common leading
chunks and no others. The key of the last chunk is the context key.
"""

import hashlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from cachegen.errors import FormatError, InvalidInputError

KEY_BYTES = 32
MODEL_FINGERPRINT_BYTES = 16
PROFILE_HASH_BYTES = 32
TOKEN_BYTES = 4
DEFAULT_CHUNK_TOKENS = 1536  # the paper's chunk length, section 5.3
# Bounds what a reader allocates for a context it was only told about.
MAX_CONTEXT_TOKENS = 2**24

_DOMAIN = b"cachegen chunk key 1\0"
_LARGEST_TOKEN_ID = 2**32 - 1

TokenIds = Sequence[int] | npt.NDArray[np.integer]


def chunk_spans(num_tokens: int, chunk_tokens: int) -> list[tuple[int, int]]:
    """Cut ``num_tokens`` tokens into spans ``(first_token, end_token)``, the end being exclusive.

    Raises
    ------
    InvalidInputError
        ``chunk_tokens`` is below one, or ``num_tokens`` is not from one to ``MAX_CONTEXT_TOKENS``: an empty
        context has no KV to store.
    """
    if not 1 <= num_tokens <= MAX_CONTEXT_TOKENS:
        raise InvalidInputError(f"num_tokens must be at least 1 and at most {MAX_CONTEXT_TOKENS}, not {num_tokens}")
    if chunk_tokens < 1:
        raise InvalidInputError(f"chunk_tokens must be at least 1, not {chunk_tokens}")
    return [(first, min(first + chunk_tokens, num_tokens)) for first in range(0, num_tokens, chunk_tokens)]


def chunk_keys(token_ids: TokenIds, chunk_tokens: int, model_fingerprint: bytes, profile_hash: bytes) -> list[bytes]:
    """Return the 32-byte key of each chunk of a context; the last one is the context key.

    Parameters
    ----------
    token_ids
        The whole context, ids from 0 to 2**32 - 1.
    chunk_tokens
        Tokens per chunk; the last chunk may be shorter.
    model_fingerprint, profile_hash
        16 and 32 bytes: whose KV this is, and which tables code it.

    Raises
    ------
    InvalidInputError
        An empty context, an id out of range, or a hash of another length.
    """
    check_hash("model_fingerprint", model_fingerprint, MODEL_FINGERPRINT_BYTES)
    check_hash("profile_hash", profile_hash, PROFILE_HASH_BYTES)
    packed = pack_tokens(token_ids)
    key = hashlib.sha256(_DOMAIN + model_fingerprint + profile_hash).digest()
    keys = []
    for first, end in chunk_spans(len(token_ids), chunk_tokens):
        key = hashlib.sha256(key + packed[first * TOKEN_BYTES : end * TOKEN_BYTES]).digest()
        keys.append(key)
    return keys


def pack_tokens(token_ids: TokenIds) -> bytes:
    """Return the ids as little-endian uint32, four bytes each.

    Raises
    ------
    InvalidInputError
        Something that is not an integer, or an id outside 0 to 2**32 - 1; the text names its place.
    """
    ids = np.asarray(token_ids)
    if ids.size == 0:
        return b""
    if ids.ndim != 1 or not np.issubdtype(ids.dtype, np.integer):
        raise InvalidInputError(
            f"token ids must be one row of integers up to {_LARGEST_TOKEN_ID}, not {ids.dtype} of shape {ids.shape}"
        )
    outside = np.flatnonzero((ids < 0) | (ids > _LARGEST_TOKEN_ID))
    if outside.size:
        place = int(outside[0])
        raise InvalidInputError(f"token {place} has id {ids[place]}, outside 0 to {_LARGEST_TOKEN_ID}")
    return ids.astype("<u4").tobytes()


def unpack_tokens(data: bytes, num_tokens: int) -> list[int]:
    """Return the ``num_tokens`` ids that ``pack_tokens`` wrote.

    Raises
    ------
    FormatError
        The length is not four bytes for each of ``num_tokens`` tokens.
    """
    if len(data) != num_tokens * TOKEN_BYTES:
        raise FormatError(f"tokens object: {len(data)} bytes, but {num_tokens} tokens take {num_tokens * TOKEN_BYTES}")
    return [int(token) for token in np.frombuffer(data, dtype="<u4")]


def check_hash(field: str, value: bytes, length_bytes: int) -> None:
    """Refuse a hash of another length; ``field`` is its name in the text of the error.

    Raises
    ------
    InvalidInputError
        ``value`` is not ``length_bytes`` long.
    """
    if len(value) != length_bytes:
        raise InvalidInputError(f"{field} must be {length_bytes} bytes, not {len(value)}")
