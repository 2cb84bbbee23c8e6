"""What a load must have given: the cache made of undamaged chunks in the encodings that its log names.

Written without the loader's own parts, so that it can bear witness: objects are decoded and put one behind the other,
and what was recomputed is recomputed, in order.
"""

from collections.abc import Sequence

from cachegen import (
    ChunkIdentity,
    KVCache,
    LanguageModel,
    Manifest,
    Profile,
    decode_chunk,
    encode_chunk,
    parse_encoding,
)


class CleanContext:
    """A context as it was calculated, and its chunks as they were first encoded.

    Parameters
    ----------
    model, profile
        Whose it is.
    cache : KVCache
        Calculated, of all its tokens.
    manifest : Manifest
        Its chunks' spans and keys.
    """

    def __init__(self, model: LanguageModel, profile: Profile, cache: KVCache, manifest: Manifest) -> None:
        self._model, self._profile, self._cache, self._manifest = model, profile, cache, manifest
        self._answers: dict[tuple[tuple[str, ...], int], list[int]] = {}

    def assemble(self, chunk_sources: Sequence[str]) -> KVCache:
        """Return the cache whose chunks came so.

        A load that had no manifest has other chunks than the manifest lists, all of them recomputed.
        """
        cache = self._model.new_cache(self._manifest.num_tokens)
        token_ids = self._cache.token_ids
        if len(chunk_sources) != len(self._manifest.chunks):
            assert set(chunk_sources) == {"recompute"}, "without a manifest nothing can be fetched"
            length = -(-len(token_ids) // len(chunk_sources))
            for first in range(0, len(token_ids), length):
                self._model.prefill(cache, token_ids[first : first + length])
            return cache
        for index, (chunk, source) in enumerate(zip(self._manifest.chunks, chunk_sources, strict=True)):
            span = chunk.first_token, chunk.first_token + chunk.num_tokens
            tokens = token_ids[slice(*span)]
            if source == "recompute":
                self._model.prefill(cache, tokens)
                continue
            identity = ChunkIdentity(self._model.fingerprint, self._profile.hash, chunk.key, index, span[0])
            behind = self._manifest.num_tokens - span[1]
            data = encode_chunk(self._cache.chunk(*span), parse_encoding(source), identity, self._profile, behind)
            cache.write(span[0], decode_chunk(data, self._profile, identity, self._model.device).kv)
            cache.commit(tokens)
        return cache

    def answer(self, chunk_sources: Sequence[str], question_ids: Sequence[int], new_tokens: int) -> list[int]:
        """Return the greedy answer to a question about the context whose chunks came so; kept for the next time."""
        place = (*chunk_sources, *map(str, question_ids)), new_tokens
        if place not in self._answers:
            self._answers[place] = self._model.generate(
                self.assemble(chunk_sources), question_ids, max_new_tokens=new_tokens, do_sample=False
            )
        return self._answers[place]
