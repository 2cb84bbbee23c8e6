"""What a profile is worth on text that it was not made from: size and harm of each encoding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from cachegen.chunking import chunk_spans
from cachegen.container import ChunkIdentity
from cachegen.encoding import Encoding
from cachegen.errors import InvalidInputError, QualityError
from cachegen.kv_cache import KVCache
from cachegen.model import LanguageModel
from cachegen.pipeline import check_encodable, decode_chunk, encode_chunk
from cachegen.profile import Profile

CHECK_CHUNK_TOKENS = 512
CHECK_CONTINUATION_TOKENS = 256
_FP16_BITS = 16
_KEY_BYTES = 32


@dataclass(frozen=True)
class HeldOutRow:
    """One encoding on one text.

    Parameters
    ----------
    encoding : Encoding
    num_bytes : int
        Of all containers of the context, headers included.
    bits_per_element : float
        The same, per element of the KV cache.
    ratio_fp16 : float
        How many times smaller than the cache in 16-bit elements.
    kl : float
        Mean divergence of the next-token distribution from the uncompressed cache's, nats.
    agreement : float
        Share of positions with the same most likely token.
    """

    encoding: Encoding
    num_bytes: int
    bits_per_element: float
    ratio_fp16: float
    kl: float
    agreement: float


def check_held_out(
    model: LanguageModel, profile: Profile, token_ids: Sequence[int], encodings: Sequence[Encoding]
) -> list[HeldOutRow]:
    """Encode the cache of a text in every encoding, and compare what the model predicts behind it.

    Parameters
    ----------
    token_ids : sequence of int
        A text that the profile was not made from. Its last 256 tokens are predicted, teacher-forced, from the cache of
        those before, which is coded in chunks of 512.

    Returns
    -------
    list of HeldOutRow
        In the order of ``encodings``.

    Raises
    ------
    InvalidInputError
        The text is not longer than its part that is predicted.
    UnsupportedModelError
        An encoding cannot code this model.
    """
    length = len(token_ids) - CHECK_CONTINUATION_TOKENS
    if length < 1:
        raise InvalidInputError(
            f"a held-out text of {len(token_ids)} tokens leaves no context: {CHECK_CONTINUATION_TOKENS} are predicted"
        )
    check_encodable(encodings, length, profile)
    context, continuation = token_ids[:length], token_ids[length:]
    cache = model.new_cache(len(token_ids))
    model.prefill(cache, context)
    reference = torch.log_softmax(model.continuation_logits(cache, continuation).double(), dim=-1)
    rows = []
    for encoding in encodings:
        loaded, num_bytes = _round_trip(model, profile, cache, encoding)
        found = torch.log_softmax(model.continuation_logits(loaded, continuation).double(), dim=-1)
        bits = 8 * num_bytes / (length * model.shape.rows * model.shape.channels)
        shares = reference.exp()
        # a token that the model rules out by a logit of -inf weighs nothing; what is no number stays none
        divergence = torch.where(shares == 0, 0.0, shares * (reference - found)).sum(dim=-1).mean()
        agreement = (reference.argmax(dim=-1) == found.argmax(dim=-1)).double().mean()
        # rounding can leave a hair below zero, which no divergence is
        kl = float(divergence.clamp_min(0.0))
        rows.append(HeldOutRow(encoding, num_bytes, bits, _FP16_BITS / bits, kl, float(agreement)))
    return rows


def require_quality(rows: Sequence[HeldOutRow], max_kl: float) -> None:
    """Refuse encodings that are not good enough for a model, before anything is stored in them.

    Parameters
    ----------
    rows : sequence of HeldOutRow
        From :func:`check_held_out`, on text like that of the contexts to come.
    max_kl : float
        Largest mean divergence allowed, nats.

    Raises
    ------
    QualityError
        Some encoding diverges by more, or by what is no number; the text lists all of these.
    InvalidInputError
        Nothing was measured, or the bound is none.
    """
    if not rows or not max_kl >= 0:
        raise InvalidInputError(f"require_quality needs rows and a bound of 0 or more, got {len(rows)} and {max_kl}")
    # written so that NaN fails too
    if worse := [row for row in rows if not row.kl <= max_kl]:
        listed = ", ".join(f"{row.encoding} {row.kl:.3g}" for row in worse)
        raise QualityError(f"KL on held-out text is above {max_kl:.3g} nats: {listed}")


def _round_trip(model: LanguageModel, profile: Profile, cache: KVCache, encoding: Encoding) -> tuple[KVCache, int]:
    """The cache after encoding and decoding, and the bytes in between."""
    loaded = model.new_cache(cache.num_tokens + CHECK_CONTINUATION_TOKENS)
    num_bytes = 0
    for index, (first, end) in enumerate(chunk_spans(cache.num_tokens, CHECK_CHUNK_TOKENS)):
        identity = ChunkIdentity(model.fingerprint, profile.hash, bytes(_KEY_BYTES), index, first)
        data = encode_chunk(cache.chunk(first, end), encoding, identity, profile)
        loaded.append(decode_chunk(data, profile).kv, cache.token_ids[first:end])
        num_bytes += len(data)
    return loaded, num_bytes
