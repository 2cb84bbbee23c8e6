"""A context's tokens without a manifest to be believed: they are right if the context's key says so.

The key of a context hashes the model's fingerprint, the profile's hash and all tokens in their chunks
(``cachegen/chunking.py``). So whoever knows the key needs no word of a manifest: what one says, however damaged it is,
and what is usual are guesses, each of which the key proves or refutes.
"""

import re

from cachegen.chunking import DEFAULT_CHUNK_TOKENS, MAX_CONTEXT_TOKENS, TOKEN_BYTES, chunk_keys, unpack_tokens

# Beside what a manifest says: the library's own, and powers of two, as people choose them (the testbed: 512).
_USUAL_CHUNK_TOKENS = (DEFAULT_CHUNK_TOKENS, *(1 << power for power in range(4, 14)))
_CHUNK_TOKENS = re.compile(rb'"chunk_tokens"\s*:\s*([1-9]\d{0,7})\b')
_PROFILE_HASH = re.compile(rb'"profile_hash"\s*:\s*"([0-9a-f]{64})"')


def verified_tokens(
    context_key: bytes, tokens: bytes, manifest: bytes, model_fingerprint: bytes, profile_hash: bytes
) -> list[int] | None:
    """Return a context's tokens if its key proves them, else ``None``.

    Another profile's context is a context of this model all the same: its tokens are proven by the profile that its
    manifest names. Another model's is not, and its tokens may mean anything here; they are never returned.

    Parameters
    ----------
    context_key : bytes
        That was asked for.
    tokens, manifest : bytes
        The objects as they came; an empty manifest: none came.
    model_fingerprint, profile_hash : bytes
        Of those who want to recompute.
    """
    num_tokens, rest = divmod(len(tokens), TOKEN_BYTES)
    if rest or not 1 <= num_tokens <= MAX_CONTEXT_TOKENS:
        return None
    token_ids = unpack_tokens(tokens, num_tokens)
    said_tokens, said_hash = _CHUNK_TOKENS.search(manifest), _PROFILE_HASH.search(manifest)
    sizes = [*([int(said_tokens[1])] if said_tokens else []), *_USUAL_CHUNK_TOKENS, num_tokens]
    profiles = [profile_hash, *([bytes.fromhex(said_hash[1].decode())] if said_hash else [])]
    # a chunk that is longer than the context is as long as the context
    for size in dict.fromkeys(min(size, num_tokens) for size in sizes):
        for profile in dict.fromkeys(profiles):
            if chunk_keys(token_ids, size, model_fingerprint, profile)[-1] == context_key:
                return token_ids
    return None
