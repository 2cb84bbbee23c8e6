"""What an encoding is worth on text that its profile was not made from: size and harm."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from cachegen.chunking import KEY_BYTES, chunk_spans
from cachegen.container import ChunkIdentity
from cachegen.encoding import Encoding
from cachegen.errors import InvalidInputError, MismatchError, QualityError
from cachegen.kv_cache import KVCache
from cachegen.model import LanguageModel
from cachegen.pipeline import check_encodable, decode_chunk, encode_chunk
from cachegen.profile import Profile
from cachegen.quality import Quality, compare_logits

CHECK_CHUNK_TOKENS = 512
CHECK_CONTINUATION_TOKENS = 256
FP16_BITS = 16
# What the finest level of ``transform`` is made for; the default model's does a third of this harm.
NEAR_LOSSLESS = Encoding("transform", 0)
NEAR_LOSSLESS_KL = 3e-4


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
    dppl : float
        Perplexity of what follows minus that under the uncompressed cache.
    """

    encoding: Encoding
    num_bytes: int
    bits_per_element: float
    ratio_fp16: float
    kl: float
    agreement: float
    dppl: float


def continuation_tokens(max_tokens: int | None) -> int:
    """How many tokens of a held-out text follow its context: 256, or half of what a smaller model holds."""
    return CHECK_CONTINUATION_TOKENS if max_tokens is None else min(CHECK_CONTINUATION_TOKENS, max_tokens // 2)


class HeldOutText:
    """A text run through the model: the cache of its context, and what the model predicts behind it.

    Parameters
    ----------
    model : LanguageModel
    token_ids : sequence of int
        The last 256, or as :func:`continuation_tokens` says, follow the context, teacher-forced; compared are the
        predictions of all of these but the first.
    chunk_tokens : int
        The context is prefilled and coded in chunks of this length.

    Raises
    ------
    InvalidInputError
        The text is not longer than what follows the context.
    """

    def __init__(self, model: LanguageModel, token_ids: Sequence[int], chunk_tokens: int = CHECK_CHUNK_TOKENS) -> None:
        behind = continuation_tokens(model.max_tokens)
        length = len(token_ids) - behind
        if length < 1:
            raise InvalidInputError(f"a held-out text of {len(token_ids)} tokens leaves no context: {behind} follow it")
        self.model = model
        self.spans = chunk_spans(length, chunk_tokens)
        self._continuation = list(token_ids[length:])
        self.cache = model.new_cache(len(token_ids))
        for first, end in self.spans:
            model.prefill(self.cache, token_ids[first:end])
        self._reference = self._predict(self.cache)

    @property
    def num_elements(self) -> int:
        """Elements of the context's KV cache."""
        return self.cache.num_tokens * self.model.shape.rows * self.model.shape.channels

    def chunks(self) -> list[torch.Tensor]:
        """Chunk tensors of the context."""
        return [self.cache.chunk(first, end) for first, end in self.spans]

    def identities(self, profile: Profile) -> list[ChunkIdentity]:
        """Of each chunk, with keys of zeros, since nothing is stored under them.

        The model is the one that the profile names: this one, perhaps in another type than it computes in here.
        """
        return [
            ChunkIdentity(profile.model_fingerprint, profile.hash, bytes(KEY_BYTES), index, first)
            for index, (first, _) in enumerate(self.spans)
        ]

    def encode(self, profile: Profile, encoding: Encoding) -> list[bytes]:
        """Containers of the context's chunks."""
        return [
            encode_chunk(self.cache.chunk(first, end), encoding, identity, profile, self.cache.num_tokens - end)
            for (first, end), identity in zip(self.spans, self.identities(profile), strict=True)
        ]

    def judge(self, encoding: Encoding, num_bytes: int, decoded: Iterable[torch.Tensor]) -> HeldOutRow:
        """Size and harm of an encoding whose containers have so many bytes and give these chunks."""
        quality = self.quality_of(decoded)
        bits = 8 * num_bytes / self.num_elements
        return HeldOutRow(encoding, num_bytes, bits, FP16_BITS / bits, quality.kl, quality.agreement, quality.dppl)

    def quality_of(self, chunks: Iterable[torch.Tensor]) -> Quality:
        """Compare what the model predicts from these chunks with what it predicts from its own cache."""
        loaded = self.model.new_cache(self.cache.num_tokens + len(self._continuation))
        for kv, (first, end) in zip(chunks, self.spans, strict=True):
            loaded.append(kv, self.cache.token_ids[first:end])
        return compare_logits(self._reference, self._predict(loaded), self._continuation[1:])

    def _predict(self, cache: KVCache) -> torch.Tensor:
        return self.model.continuation_logits(cache, self._continuation[:-1])


def check_held_out(
    model: LanguageModel, profile: Profile, token_ids: Sequence[int], encodings: Sequence[Encoding]
) -> list[HeldOutRow]:
    """Encode the cache of a text in every encoding, and compare what the model predicts behind it.

    Parameters
    ----------
    token_ids : sequence of int
        A text that the profile was not made from, see :class:`HeldOutText`; coded in chunks of 512 tokens.

    Returns
    -------
    list of HeldOutRow
        In the order of ``encodings``.

    Raises
    ------
    InvalidInputError
        The text is not longer than what follows the context.
    MismatchError
        The profile is of another model, or of this one in another type.
    UnsupportedModelError
        An encoding cannot code this model.
    """
    if profile.model_fingerprint != model.fingerprint:
        raise MismatchError(
            f"the profile is of model {profile.model_fingerprint.hex()}; {model.name} is {model.fingerprint.hex()}"
        )
    check_encodable(encodings, max(0, len(token_ids) - continuation_tokens(model.max_tokens)), profile)
    text = HeldOutText(model, token_ids)
    return [check_encoding(text, profile, encoding) for encoding in encodings]


def check_encoding(text: HeldOutText, profile: Profile, encoding: Encoding) -> HeldOutRow:
    """Size and harm of one encoding on a text."""
    containers = text.encode(profile, encoding)
    return text.judge(encoding, sum(map(len, containers)), (decode_chunk(data, profile).kv for data in containers))


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
