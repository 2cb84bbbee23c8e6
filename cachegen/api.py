"""The four calls of the paper (SIGCOMM'24, section 6): calculate, store, get and use a context's KV cache."""

import asyncio
import math
import time
from collections.abc import Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast, overload

from cachegen.batch import generate_batch
from cachegen.chunking import DEFAULT_CHUNK_TOKENS, chunk_spans
from cachegen.container import ChunkIdentity, unpack
from cachegen.controllers import make_controller
from cachegen.encoding import Encoding, parse_encoding
from cachegen.errors import FormatError, InvalidInputError, ObjectNotFoundError
from cachegen.kv import dtype_of
from cachegen.kv_cache import KVCache
from cachegen.load_commands import LoadLimits
from cachegen.load_costs import LoadCosts
from cachegen.loader import ContextLoader
from cachegen.manifest import Manifest, ManifestChunk, chunk_name
from cachegen.model import LanguageModel
from cachegen.pipeline import check_encodable, context_identities, encode_chunk
from cachegen.profile import Profile
from cachegen.recompute_cost import RecomputeCost
from cachegen.sources import open_source
from cachegen.stage_clock import StageClock
from cachegen.stores import Store, open_store, publish_context


@dataclass(frozen=True)
class Generation:
    """An answer: its tokens, and the text they spell."""

    token_ids: list[int]
    text: str


def calculate_kv(model: LanguageModel, context: str | Sequence[int], chunk_tokens: int | None = None) -> KVCache:
    """Run the model over a context.

    Parameters
    ----------
    context : str or sequence of int
        Text, or its token ids.
    chunk_tokens : int, optional
        Prefill in pieces of this length, which bounds the memory of attention; default: all at once.

    Returns
    -------
    KVCache
        K and V of every token of the context.

    Raises
    ------
    InvalidInputError
        A context without tokens, or pieces of less than one.
    """
    token_ids = model.tokenize(context) if isinstance(context, str) else list(context)
    cache = model.new_cache(len(token_ids))
    for first, end in chunk_spans(len(token_ids), len(token_ids) if chunk_tokens is None else chunk_tokens):
        model.prefill(cache, token_ids[first:end])
    return cache


@overload
def generate_with_kv(
    model: LanguageModel, cache: KVCache, question: str | Sequence[int], **options: Any
) -> Generation: ...


@overload
def generate_with_kv(
    model: LanguageModel, cache: Sequence[KVCache], question: Sequence[str | Sequence[int]], **options: Any
) -> list[Generation]: ...


def generate_with_kv(
    model: LanguageModel,
    cache: KVCache | Sequence[KVCache],
    question: str | Sequence[int] | Sequence[str | Sequence[int]],
    **options: Any,
) -> Generation | list[Generation]:
    """Answer a question about a context whose KV cache is at hand, or several side by side; caches stay as they were.

    Parameters
    ----------
    cache : KVCache or sequence of KVCache
        From :func:`calculate_kv` or :func:`get_kv`. Several make a batch, of any lengths; one of them may stand in it
        more than once.
    question : str or sequence of int; for several caches, a sequence of them
        What follows the context.
    **options
        For transformers' ``generate``: ``max_new_tokens=64``, ``do_sample=False`` ...

    Returns
    -------
    Generation or list of Generation
        With an uncompressed cache, the very tokens that ``generate`` gives on context and question together; sampled
        ones if torch's random state is the same. Of a batch, each row's greedy tokens are those of the row alone, up to
        rounding; sampled ones are those of ``generate`` on the left-padded batch.

    Raises
    ------
    InvalidInputError
        No question, or an option that transformers does not know or that cannot be followed: it needs several
        sequences, it says what the cache says, it leads beyond what the model was made for, or, in a batch, it would
        count padding.
    MismatchError
        A cache is another model's.
    UnsupportedModelError
        A batch for a model that counts positions by the cache's length.

    Notes
    -----
    A batch copies its caches: rows x tokens of the longest context and question, each token of the size it has in the
    cache. As in transformers, each new token copies one layer after the other, so one layer is there twice at a time.
    """
    if isinstance(cache, KVCache):
        question_ids = _question_ids(model, cast("str | Sequence[int]", question))
        return _generation(model, model.generate(cache, question_ids, **options))
    if isinstance(question, str):
        raise InvalidInputError("several caches need a sequence of questions, one for each")
    questions = [_question_ids(model, each) for each in cast("Sequence[str | Sequence[int]]", question)]
    return [_generation(model, token_ids) for token_ids in generate_batch(model, cache, questions, **options)]


def _question_ids(model: LanguageModel, question: str | Sequence[int]) -> list[int]:
    return model.tokenize(question) if isinstance(question, str) else list(question)


def _generation(model: LanguageModel, token_ids: list[int]) -> Generation:
    return Generation(token_ids, model.detokenize(token_ids))


def store_kv(
    store_url: str,
    model: LanguageModel,
    cache: KVCache,
    encodings: Sequence[str],
    profile: Profile,
    chunk_tokens: int = DEFAULT_CHUNK_TOKENS,
) -> Manifest:
    """Encode a context's KV cache, chunk by chunk in every encoding, and publish it.

    A chunk that the store has already, of another context with the same prefix, is used as it is; one that is damaged
    is replaced.

    Parameters
    ----------
    store_url : str
        A folder or any URL that :func:`cachegen.open_store` opens for writing.
    encodings : sequence of str
        Such as ``["cachegen-0", "cachegen-1", "cachegen-2"]``.
    profile : Profile
        The model's, from :func:`cachegen.cached_profile`.

    Returns
    -------
    Manifest
        Its ``context_key`` is what :func:`get_kv` takes.

    Raises
    ------
    InvalidInputError
        No encoding, or one that there is not.
    MismatchError
        The cache or the profile is another model's.
    StoreError
        The store does not take the objects.
    """
    wanted = [parse_encoding(name) for name in encodings]
    if not wanted:
        raise InvalidInputError("store_kv needs at least one encoding")
    model.check_cache(cache)
    check_encodable(wanted, cache.num_tokens, profile)
    store = open_store(store_url)
    objects: list[tuple[bytes, str, bytes]] = []
    chunks = []
    for span, identity in context_identities(cache.token_ids, chunk_tokens, model.fingerprint, profile.hash):
        coded = [(str(each), _stored_or_encoded(store, cache, span, each, identity, profile)) for each in wanted]
        objects += [(identity.chunk_key, name, data) for name, data in coded]
        sizes = {name: len(data) for name, data in coded}
        chunks.append(ManifestChunk(identity.chunk_key, span[0], span[1] - span[0], sizes))
    manifest = Manifest(
        context_key=chunks[-1].key,
        model_fingerprint=model.fingerprint,
        profile_hash=profile.hash,
        num_tokens=cache.num_tokens,
        chunk_tokens=chunk_tokens,
        num_layers=cache.shape.num_layers,
        num_kv_heads=cache.shape.num_kv_heads,
        head_dim=cache.shape.head_dim,
        dtype=dtype_of(cache.chunk(0, 1)).name,
        chunks=tuple(chunks),
    )
    return publish_context(store, manifest, cache.token_ids, objects).manifest


def _log_nothing(event: str, **fields: Any) -> None:
    """Take an event of the loader that nobody asked for."""


def _stored_or_encoded(
    store: Store,
    cache: KVCache,
    span: tuple[int, int],
    encoding: Encoding,
    identity: ChunkIdentity,
    profile: Profile,
) -> bytes:
    """Container of a chunk. Its bytes depend on where its context ends, so contexts that share it must not differ."""
    with suppress(ObjectNotFoundError, FormatError):
        data = store.get(chunk_name(identity.chunk_key, str(encoding)))
        found = unpack(data)
        if (found.encoding, found.identity) == (encoding, identity):
            return data
    return encode_chunk(cache.chunk(*span), encoding, identity, profile, cache.num_tokens - span[1])


def get_kv(store_url: str, model: LanguageModel, context_key: bytes, encoding: str, profile: Profile) -> KVCache:
    """Fetch and decode a stored context in one encoding.

    A chunk that is missing or damaged is recomputed. For adaptation to a deadline see
    :class:`cachegen.ContextLoader`, which this is the plain case of.

    Parameters
    ----------
    store_url : str
        A folder, any other URL that :func:`cachegen.open_store` opens, or ``http://host:port`` or ``https://host:port``
        of a storage server.
    context_key : bytes
        From the manifest that :func:`store_kv` returned.
    encoding : str
        One of those it was stored in.

    Returns
    -------
    KVCache

    Raises
    ------
    StoreError, FormatError, MismatchError
        There is no such context, or it is damaged, or another model's or profile's.
    InvalidInputError
        It is not stored in that encoding.
    """
    controller = make_controller(f"fixed:{encoding}", [encoding])

    async def load() -> KVCache:
        source = open_source(store_url)
        try:
            # a fixed controller asks for no prediction, so nothing is measured; there is no deadline either
            costs = LoadCosts(RecomputeCost(0.0, 0.0, 0.0), reserve_s=0.0)
            loader = ContextLoader(model, profile, source, costs, _log_nothing, LoadLimits(patience_s=math.inf))
            clock = StageClock(time.monotonic())
            loaded = await loader.load(context_key, controller, [encoding], slo_s=0.0, clock=clock)
            return loaded.cache
        finally:
            await source.close()

    return _run(load())


def _run(work: Coroutine[Any, Any, KVCache]) -> KVCache:
    """Run to the end, in a thread of its own where this one has a loop already, as in a notebook."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="get_kv") as thread:
        return thread.submit(asyncio.run, work).result()
