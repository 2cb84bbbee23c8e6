"""Put chunks into a cache, in order: decode them, or recompute those that did not come as they should."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol

import torch

from cachegen.container import ChunkIdentity
from cachegen.controllers import Recompute
from cachegen.errors import FormatError, MismatchError
from cachegen.kv_cache import KVCache
from cachegen.manifest import Manifest
from cachegen.model import LanguageModel
from cachegen.pipeline import decode_chunk
from cachegen.profile import Profile
from cachegen.stage_clock import Stage, StageClock

# Chunks that may wait for their decode: bounds the memory that a slow decoder can pile up.
_MAX_UNDECODED = 2


class EventLog(Protocol):
    """Takes what happens during a load, as it happens; called from the loop's and the decoder's thread."""

    def __call__(self, event: str, **fields: Any) -> None:
        """Note ``event``."""
        ...


class Assembly:
    """Puts chunks into the cache, in order, in a thread of its own, while the loop goes on fetching."""

    def __init__(
        self,
        model: LanguageModel,
        profile: Profile,
        manifest: Manifest,
        token_ids: Sequence[int],
        cache: KVCache,
        clock: StageClock,
        log: EventLog,
    ) -> None:
        self._model, self._profile, self._manifest = model, profile, manifest
        self._token_ids, self._cache, self._clock, self._log = token_ids, cache, clock, log
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="assembly")
        self._jobs: list[Future[str]] = []

    async def add(self, index: int, encoding: str, data: bytes | None) -> None:
        """Decode a chunk behind the ones before it; returns at once unless too many are waiting."""
        self._submit(lambda: self._decode_or_recompute(index, encoding, data))
        if len(self._jobs) > _MAX_UNDECODED:
            await asyncio.wrap_future(self._jobs[-1 - _MAX_UNDECODED])

    async def recompute(self, index: int) -> None:
        """Prefill a chunk behind the ones before it, and wait until that is done."""
        self._submit(lambda: self._recompute(index))
        await asyncio.wrap_future(self._jobs[-1])

    async def finish(self) -> tuple[str, ...]:
        """Wait for all chunks; return how each one came, in order."""
        return tuple([await asyncio.wrap_future(job) for job in self._jobs])

    async def close(self) -> None:
        """Drop jobs that have not begun and wait for the one that runs: it must not write into a cache given up."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        # wrapped anew: a future that was cancelled while awaited is done before its job is
        await asyncio.gather(*map(asyncio.wrap_future, self._jobs), return_exceptions=True)
        self._thread.shutdown()

    def _submit(self, work: Callable[[], str]) -> None:
        self._jobs.append(self._thread.submit(work))

    def _decode_or_recompute(self, index: int, encoding: str, data: bytes | None) -> str:
        if data is None:
            return self._recompute(index)
        started_s = self._clock.elapsed_s()
        try:
            with self._clock.compute(Stage.DECODE):
                self._cache.append(self._decode(index, encoding, data), self._chunk_tokens(index))
        except (FormatError, MismatchError) as error:
            self._log("decode_failed", chunk=index, encoding=encoding, error=str(error))
            return self._recompute(index)
        self._log("decode", chunk=index, encoding=encoding, started_s=started_s, ended_s=self._clock.elapsed_s())
        return encoding

    def _decode(self, index: int, encoding: str, data: bytes) -> torch.Tensor:
        decoded = decode_chunk(data, self._profile, self._identity(index), self._model.device)
        wanted = (encoding, self._model.shape.chunk_shape(self._manifest.chunks[index].num_tokens))
        found = (str(decoded.encoding), tuple(decoded.kv.shape))
        if found != wanted:
            raise MismatchError(f"chunk {index} is {found[0]} of shape {found[1]}, wanted {wanted[0]} of {wanted[1]}")
        return decoded.kv

    def _recompute(self, index: int) -> str:
        started_s = self._clock.elapsed_s()
        with self._clock.compute(Stage.RECOMPUTE):
            self._model.prefill(self._cache, self._chunk_tokens(index))
        self._log("recompute", chunk=index, started_s=started_s, ended_s=self._clock.elapsed_s())
        return str(Recompute())

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
