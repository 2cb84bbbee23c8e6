"""The streaming loader: brings a context into memory as a controller decides, by fetching and recomputing at once."""

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from cachegen.assembly import Assembly
from cachegen.chunking import chunk_keys, chunk_spans
from cachegen.controllers import Controller, make_controller
from cachegen.early_fetch import EarlyFetch
from cachegen.errors import FormatError, InvalidInputError, MismatchError, StoreError
from cachegen.estimators import make_estimator
from cachegen.index_fetch import Index, IndexFetch, index_without_store
from cachegen.index_recovery import verified_tokens
from cachegen.kv_cache import KVCache
from cachegen.link_use import LinkKnowledge
from cachegen.load_commands import EventLog, LoadLimits
from cachegen.load_costs import LoadCosts
from cachegen.load_host import LoadHost
from cachegen.load_run import LoadRun
from cachegen.load_session import LoadSession
from cachegen.manifest import Manifest, check_tokens
from cachegen.model import LanguageModel
from cachegen.profile import Profile
from cachegen.recompute_cost import IMPOSSIBLE_S
from cachegen.sharing import HostLimits
from cachegen.sources import Source
from cachegen.stage_clock import StageClock

# An index is not waited for much longer than any store takes, though the load's patience may have no end.
_MAX_INDEX_PATIENCE_S = 5.0
# Where recomputing barely holds the deadline, a store that lives still has the time to say so.
_LEAST_INDEX_PATIENCE_S = 0.5
# Without a manifest nothing says where chunks begin; so long a piece bounds the memory of attention.
_RECOMPUTED_CHUNK_TOKENS = 512
# An object whose size the index is yet to tell is at most as large as the float32 KV of so many tokens.
_EARLY_TOKENS = 2048


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
        Receives ``index_failed``, ``index_given_up`` and ``index`` events and those of :class:`cachegen.LoadSession`.
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
        token_ids: Sequence[int] | None = None,
        follow: Callable[[KVCache], Any] | None = None,
        estimator: str | None = None,
    ) -> LoadedContext:
        """Load a context.

        A chunk that does not arrive, or arrives damaged or foreign, is decided anew: it comes in another encoding, or
        in the same one at a second try, or is recomputed. A store that is silent, or after the deadline slower than
        recomputing, is given up, and what is missing is recomputed (``LoadLimits.patience_s``). The log says so.

        The index (manifest and tokens) is asked for until it is there, at the longest until the deadline and the load's
        patience have passed. A caller that knows the tokens needs no store for a right cache: where the index cannot
        be had, is damaged or another's, everything is recomputed. So it is for another caller where the tokens alone
        are there and the context's key proves them, unless the load's patience is infinite.

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
        token_ids : sequence of int, optional
            The context's, where the caller has them; default: they are fetched.
        follow : callable, optional
            What to compute on the cache as soon as it is complete, in the host's compute thread and in the load's own
            turn: the question's prefill, which would otherwise wait behind other loads or hold them up.
        estimator : str, optional
            Whose throughput the controller is told, a name of ``ESTIMATORS``; default: the one that suits it. Where a
            host's link is one queue, the first load's is all loads'.

        Raises
        ------
        AdmissionError
            The host refuses loads that come too late, and this is one.
        StoreError, FormatError, MismatchError
            The manifest or the tokens are missing, corrupted, or another model's or profile's, the caller gave no
            tokens, and none are proven by the context's key: nothing can be recomputed either. Or a chunk that cannot
            be recomputed by ``costs`` is not to be had whole.
        UnknownNameError
            No such estimator.
        InvalidInputError
            The tokens that the caller gave are not those of the context, or no chunk is stored in any encoding that the
            controller may choose.
        """
        # an unknown name is refused before anything is asked for
        estimates = make_estimator(controller.estimator if estimator is None else estimator)
        deadline_s = slo_s - self._costs.reserve_s
        async with self._early_fetch(context_key, controller, known, clock) as early:
            index = await self._find_index(context_key, clock, deadline_s, token_ids)
            asked = None if early is None else early.hand_over()
            if early is not None and asked is None:
                await early.close()  # the index was quicker, or it has failed
            if not any(chunk.encodings for chunk in index.manifest.chunks):
                controller = make_controller("text", [])
            host = self._host or LoadHost(limits=HostLimits(self._limits.in_flight, self._limits.undecoded))
            session = LoadSession(
                self._costs.options(index.manifest, encodings),
                controller,
                estimates,
                deadline_s,
                self._log,
                self._limits,
                LinkKnowledge(known.throughput_bps if known else None, index.rtt_s),
                host=host.shared,
                arrival_s=clock.start_s,
                after_s=0.0 if follow is None else self._costs.reserve_s,
                early=asked,
            )
            if early is not None and early.failure is not None:
                session.early_failed(early.encoding_name, str(early.failure), early.received_bytes)
            return await self._carry_out(session, index, clock, host, early if asked else None, room_tokens, follow)

    async def _carry_out(
        self,
        session: LoadSession,
        index: Index,
        clock: StageClock,
        host: LoadHost,
        early: EarlyFetch | None,
        room_tokens: int,
        follow: Callable[[KVCache], Any] | None,
    ) -> LoadedContext:
        """Fill a new cache as the session says."""
        manifest = index.manifest
        try:
            if host.admission:
                session.admit(clock.elapsed_s())
            cache = self._model.new_cache(manifest.num_tokens + room_tokens)
            assembly = Assembly(self._model, self._profile, manifest, index.token_ids, cache, clock, host)
            run = LoadRun(session, assembly, self._source, manifest, clock, host, early)
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

    @asynccontextmanager
    async def _early_fetch(
        self, context_key: bytes, controller: Controller, known: LinkKnowledge | None, clock: StageClock
    ) -> AsyncIterator[EarlyFetch | None]:
        """Ask for the last chunk beside the index; not where other loads are about, or turns are kept."""
        with nullcontext(True) if self._host is None else self._host.loading() as alone:
            in_turns = self._host is not None and self._host.shared.one_queue
            name = controller.before_index(known) if alone and not in_turns else None
            if name is None:
                yield None
                return
            max_bytes = 4 * math.prod(self._model.shape.chunk_shape(_EARLY_TOKENS))
            counted = nullcontext() if self._host is None else self._host.early_object()
            early = EarlyFetch(self._source, context_key, name, max_bytes, clock, counted)
            try:
                yield early
            finally:
                await early.close()

    async def _find_index(
        self, context_key: bytes, clock: StageClock, deadline_s: float, token_ids: Sequence[int] | None
    ) -> Index:
        """Fetch the index; make one that lists nothing where that is all that can be done."""
        now_s = clock.elapsed_s()
        until_s = self._index_until_s(now_s, deadline_s, token_ids)
        fetch = IndexFetch(self._source, clock, self._log)
        try:
            index = await fetch.fetch(context_key, token_ids, until_s)
            self._check_owner(index.manifest, context_key)
            if token_ids is not None:
                _check_given(token_ids, index.manifest)
            check_tokens(index.manifest, index.token_ids)
        except (StoreError, FormatError, MismatchError) as error:
            proven = await self._proven_tokens(fetch, context_key, until_s) if token_ids is None else token_ids
            if proven is None:
                raise
            self._log("index_given_up", error=str(error))
            index = index_without_store(proven, _RECOMPUTED_CHUNK_TOKENS, self._model, self._profile)
        self._log("index", chunks=len(index.manifest.chunks), tokens=index.manifest.num_tokens)
        return index

    async def _proven_tokens(self, fetch: IndexFetch, context_key: bytes, until_s: float) -> list[int] | None:
        """The context's tokens, where its key proves what is there of an index, and recomputing is an answer."""
        may_recompute = math.isfinite(self._limits.patience_s) and self._costs.recompute.predict(0, 1) < IMPOSSIBLE_S
        remains = await fetch.fetch_remains(context_key, until_s) if may_recompute else None
        if remains is None:
            return None
        tokens, manifest = remains
        model, profile = self._model.fingerprint, self._profile.hash
        # hashing a long context in several ways takes a moment, in which other loads go on
        return await asyncio.to_thread(verified_tokens, context_key, tokens, manifest, model, profile)

    def _index_until_s(self, now_s: float, deadline_s: float, token_ids: Sequence[int] | None) -> float:
        patience_s = min(_MAX_INDEX_PATIENCE_S, self._limits.patience_s)
        if token_ids is None:
            return max(now_s, deadline_s) + patience_s
        predict = self._costs.recompute.predict
        spans = chunk_spans(len(token_ids), _RECOMPUTED_CHUNK_TOKENS)
        spare_s = deadline_s - now_s - sum(predict(first, end - first) for first, end in spans)
        # while recomputing holds the deadline, the wait must not break it
        return now_s + (min(patience_s, max(spare_s, _LEAST_INDEX_PATIENCE_S)) if spare_s > 0 else patience_s)

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


def _check_given(token_ids: Sequence[int], manifest: Manifest) -> None:
    """Tell a caller's mistake from a damaged manifest: the context's key is known from the caller too."""
    keys = chunk_keys(token_ids, manifest.chunk_tokens, manifest.model_fingerprint, manifest.profile_hash)
    if keys[-1] != manifest.context_key:
        raise InvalidInputError(f"the {len(token_ids)} token_ids are not those of context {manifest.context_key.hex()}")
