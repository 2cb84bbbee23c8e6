"""The streaming loader: brings a context into memory as a controller decides, by fetching and recomputing at once."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from cachegen.assembly import Assembly
from cachegen.chunking import unpack_tokens
from cachegen.controllers import ChunkOptions, Controller
from cachegen.errors import MismatchError
from cachegen.estimators import make_estimator
from cachegen.kv_cache import KVCache
from cachegen.link_use import LinkKnowledge
from cachegen.load_host import LoadHost
from cachegen.load_run import LoadRun
from cachegen.load_session import EventLog, LoadLimits, LoadSession
from cachegen.manifest import (
    MAX_MANIFEST_BYTES,
    Manifest,
    check_tokens,
    manifest_name,
    tokens_name,
    unpack_manifest,
)
from cachegen.model import LanguageModel
from cachegen.profile import Profile
from cachegen.recompute_cost import RecomputeCost
from cachegen.sharing import HostLimits
from cachegen.sources import Source
from cachegen.stage_clock import Stage, StageClock

_MAX_TOKENS_OBJECT_BYTES = 1 << 26  # 16 million tokens


@dataclass(frozen=True)
class LoadCosts:
    """What this machine needs for the parts that no network touches; measured, never assumed.

    Parameters
    ----------
    recompute : RecomputeCost
        Seconds of prefill by prefix and length.
    reserve_s : float
        Seconds between the last chunk's last byte and the first token: its decode and the question's prefill.
    """

    recompute: RecomputeCost
    reserve_s: float


@dataclass(frozen=True)
class LoadedContext:
    """A context in memory.

    Parameters
    ----------
    cache : KVCache
        Its keys and values.
    chunk_sources : tuple of str
        How each chunk came there: an encoding's name or ``recompute``.
    wasted_bytes : int
        Bytes that arrived in vain.
    link : LinkKnowledge
        What was learnt of the link, for the next load.
    followed : Any
        What came of the computation that followed, if there was one.
    """

    cache: KVCache
    chunk_sources: tuple[str, ...]
    wasted_bytes: int
    link: LinkKnowledge
    followed: Any = None


class ContextLoader:
    """Loads contexts for one model from one source.

    Parameters
    ----------
    model : LanguageModel
        Recomputes chunks, and says whose KV is acceptable.
    profile : Profile
        Tables of the ``cachegen`` codec.
    source : Source
        Where the objects are.
    costs : LoadCosts
        For the controller's predictions.
    log : EventLog
        Receives ``index``, ``decision``, ``fetch``, ``fetch_cancelled``, ``fetch_failed``, ``decode``,
        ``decode_failed`` and ``recompute`` events.
    limits : LoadLimits, optional
        What a load may have going at once; default: those of the class.
    host : LoadHost, optional
        Shared with other loads, of this loader and of others; default: each load has one of its own.
    """

    def __init__(
        self,
        model: LanguageModel,
        profile: Profile,
        source: Source,
        costs: LoadCosts,
        log: EventLog,
        limits: LoadLimits | None = None,
        host: LoadHost | None = None,
    ) -> None:
        self._model, self._profile, self._source = model, profile, source
        self._costs, self._log, self._limits, self._host = costs, log, limits or LoadLimits(), host

    async def load(
        self,
        context_key: bytes,
        controller: Controller,
        encodings: Sequence[str],
        slo_s: float,
        clock: StageClock,
        room_tokens: int = 0,
        known: LinkKnowledge | None = None,
        follow: Callable[[KVCache], Any] | None = None,
    ) -> LoadedContext:
        """Load a context.

        A chunk that does not arrive, or arrives damaged or foreign, is decided anew: it comes in another encoding, or
        in the same one at a second try, or is recomputed. The log says so.

        Parameters
        ----------
        context_key : bytes
            Which context.
        controller : Controller
            Decides how each chunk comes.
        encodings : sequence of str
            Those it may choose from, finest first.
        slo_s : float
            TTFT objective, from the clock's start.
        clock : StageClock
            Of the request; charged with the load's stages.
        room_tokens : int
            Room to leave behind the context for question and answer.
        known : LinkKnowledge, optional
            Of the link, from loads before; default: nothing.
        follow : callable, optional
            What to compute on the cache as soon as it is complete, in the host's compute thread and in the load's own
            turn: the question's prefill, which would otherwise wait behind other loads or hold them up.

        Raises
        ------
        AdmissionError
            The host refuses loads that come too late, and this is one.
        StoreError, FormatError, MismatchError
            The manifest or the tokens are missing, corrupted, or another model's or profile's: without the
            tokens nothing can be recomputed either.
        InvalidInputError
            The controller may choose an encoding that is not stored.
        """
        manifest, token_ids = await self._fetch_index(context_key, clock)
        host = self._host or LoadHost(limits=HostLimits(self._limits.in_flight, self._limits.undecoded))
        session = LoadSession(
            self._options(manifest, encodings),
            controller,
            make_estimator(controller.estimator),
            slo_s - self._costs.reserve_s,
            self._log,
            self._limits,
            known,
            host=host.shared,
            arrival_s=clock.start_s,
            after_s=0.0 if follow is None else self._costs.reserve_s,
        )
        try:
            if host.admission:
                session.admit(clock.elapsed_s())
            cache = self._model.new_cache(manifest.num_tokens + room_tokens)
            assembly = Assembly(self._model, self._profile, manifest, token_ids, cache, clock, host)
            run = LoadRun(session, assembly, self._source, manifest, clock, host)
            try:
                await run.run()
                assembly.finish()
                followed = None if follow is None else await run.follow(follow)
            finally:
                await assembly.close()
                run.close()
        finally:
            session.leave()
            if self._host is None:
                await host.close()
        return LoadedContext(cache, session.chunk_sources, session.wasted_bytes, session.link, followed)

    async def _fetch_index(self, context_key: bytes, clock: StageClock) -> tuple[Manifest, list[int]]:
        """Fetch manifest and tokens side by side, one round trip for both."""
        clock.network(Stage.WAIT)
        on_first_byte = lambda: clock.network(Stage.FETCH)  # noqa: E731 - two words, used twice
        fetches = [
            asyncio.ensure_future(self._source.fetch(name, max_bytes, on_first_byte))
            for name, max_bytes in (
                (manifest_name(context_key), MAX_MANIFEST_BYTES),
                (tokens_name(context_key), _MAX_TOKENS_OBJECT_BYTES),
            )
        ]
        try:
            raw_manifest, raw_tokens = await asyncio.gather(*fetches)
        finally:
            # where one has failed, the other must not go on behind the caller's back
            for fetch in fetches:
                fetch.cancel()
            await asyncio.gather(*fetches, return_exceptions=True)
        clock.network(Stage.WAIT)
        manifest = unpack_manifest(raw_manifest)
        self._check_owner(manifest, context_key)
        token_ids = unpack_tokens(raw_tokens, manifest.num_tokens)
        check_tokens(manifest, token_ids)
        self._log("index", chunks=len(manifest.chunks), tokens=manifest.num_tokens)
        return manifest, token_ids

    def _check_owner(self, manifest: Manifest, context_key: bytes) -> None:
        shape = self._model.shape
        for field, found, wanted in (
            ("context key", manifest.context_key.hex(), context_key.hex()),
            ("model fingerprint", manifest.model_fingerprint.hex(), self._model.fingerprint.hex()),
            ("profile hash", manifest.profile_hash.hex(), self._profile.hash.hex()),
            ("num_layers", manifest.num_layers, shape.num_layers),
            ("num_kv_heads", manifest.num_kv_heads, shape.num_kv_heads),
            ("head_dim", manifest.head_dim, shape.head_dim),
        ):
            if found != wanted:
                raise MismatchError(f"manifest: {field} is {found}, wanted {wanted}")

    def _options(self, manifest: Manifest, encodings: Sequence[str]) -> tuple[ChunkOptions, ...]:
        predict = self._costs.recompute.predict
        return tuple(
            ChunkOptions(
                index=index,
                num_tokens=chunk.num_tokens,
                sizes_bytes={name: chunk.encodings[name] for name in encodings if name in chunk.encodings},
                recompute_s=predict(chunk.first_token, chunk.num_tokens),
            )
            for index, chunk in enumerate(manifest.chunks)
        )
