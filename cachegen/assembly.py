"""Put chunks into a cache: decode them in any order, recompute them behind those that are in place."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from cachegen.container import ChunkIdentity
from cachegen.errors import MismatchError
from cachegen.kv import KV_DTYPES
from cachegen.kv_cache import KVCache
from cachegen.load_host import LoadHost
from cachegen.manifest import Manifest
from cachegen.model import LanguageModel
from cachegen.pipeline import decode_chunk
from cachegen.profile import Profile
from cachegen.stage_clock import Stage, StageClock

# When a piece of work began and ended, on the request's clock.
Span = tuple[float, float]
T = TypeVar("T")


class Assembly:
    """Decodes in one of the host's threads and recomputes in another, while the loop goes on fetching.

    Parameters
    ----------
    model : LanguageModel
        Recomputes.
    profile : Profile
        For the codecs with tables.
    manifest : Manifest
        Of the context.
    token_ids : sequence of int
        Of the context.
    cache : KVCache
        Empty, with room for the whole context: chunks are written where they belong.
    clock : StageClock
        Charged with what is done.
    host : LoadHost
        Whose threads do it.
    """

    def __init__(
        self,
        model: LanguageModel,
        profile: Profile,
        manifest: Manifest,
        token_ids: Sequence[int],
        cache: KVCache,
        clock: StageClock,
        host: LoadHost,
    ) -> None:
        self._model, self._profile, self._manifest = model, profile, manifest
        self._token_ids, self._cache, self._clock, self._host = token_ids, cache, clock, host
        self._jobs: set[Future[Any]] = set()
        # chunks decoded and not yet noted as the cache's own, because something before them is missing
        self._written: set[int] = set()
        self._noted = 0

    async def decode(self, index: int, encoding: str, data: bytes) -> Span:
        """Decode a chunk into its place.

        Raises
        ------
        FormatError, MismatchError
            The bytes are damaged, or another chunk's, model's or profile's.
        """
        return await self._run(self._host.submit_decode(lambda: self._decode(index, encoding, data)))

    async def recompute(self, index: int) -> Span:
        """Prefill a chunk behind the ones before it, all of which have to be in place."""
        return await self._run(self._host.submit_compute(lambda: self._recompute(index)))

    def finish(self) -> None:
        """Note every chunk as the cache's own; all have to be in place."""
        self._note_before(len(self._manifest.chunks))
        assert self._noted == len(self._manifest.chunks), "a context is finished when all of its chunks are in place"

    async def follow(self, work: Callable[[KVCache], T]) -> T:
        """Compute what follows on the finished cache."""
        return await self._run(self._host.submit_compute(lambda: work(self._cache)))

    async def close(self) -> None:
        """Drop jobs that have not begun and wait for those that run: they must not write into a cache given up."""
        for job in self._jobs:
            job.cancel()
        # wrapped anew: a future that was cancelled while awaited is done before its job is
        await asyncio.gather(*map(asyncio.wrap_future, self._jobs), return_exceptions=True)

    async def _run(self, job: "Future[T]") -> T:
        self._jobs.add(job)
        try:
            return await asyncio.wrap_future(job)
        finally:
            # one that failed holds its bytes; one that still runs is waited for in the end
            if job.done():
                self._jobs.discard(job)

    def _decode(self, index: int, encoding: str, data: bytes) -> Span:
        started_s = self._clock.elapsed_s()
        with self._clock.compute(Stage.DECODE):
            self._decode_into_cache(index, encoding, data)
        self._written.add(index)
        return started_s, self._clock.elapsed_s()

    def _decode_into_cache(self, index: int, encoding: str, data: bytes) -> None:
        chunk = self._manifest.chunks[index]
        room = self._cache.room(chunk.first_token, chunk.num_tokens)
        # a cache may have been stored in another dtype than the model's
        stored = {entry.name: entry.torch for entry in KV_DTYPES}.get(self._manifest.dtype, room.dtype)
        out = room if stored == room.dtype else room.new_empty(room.shape, dtype=stored)
        found = str(decode_chunk(data, self._profile, self._identity(index), out=out).encoding)
        if found != encoding:
            raise MismatchError(f"chunk {index} is {found}, wanted {encoding}")
        if out is not room:
            room.copy_(out)

    def _recompute(self, index: int) -> Span:
        started_s = self._clock.elapsed_s()
        with self._clock.compute(Stage.RECOMPUTE):
            self._note_before(index)
            assert self._noted == index, "a chunk is recomputed behind those before it"
            self._model.prefill(self._cache, self._chunk_tokens(index))
            self._noted += 1
        return started_s, self._clock.elapsed_s()

    def _note_before(self, end: int) -> None:
        while self._noted < end and self._noted in self._written:
            self._cache.commit(self._chunk_tokens(self._noted))
            self._noted += 1

    def _chunk_tokens(self, index: int) -> Sequence[int]:
        chunk = self._manifest.chunks[index]
        return self._token_ids[chunk.first_token : chunk.first_token + chunk.num_tokens]

    def _identity(self, index: int) -> ChunkIdentity:
        chunk = self._manifest.chunks[index]
        return ChunkIdentity(
            model_fingerprint=self._manifest.model_fingerprint,
            profile_hash=self._manifest.profile_hash,
            chunk_key=chunk.key,
            chunk_index=index,
            first_token=chunk.first_token,
        )
