"""A context's index, which is its manifest and its tokens: fetched with patience, or made from the tokens alone."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from cachegen.chunking import unpack_tokens
from cachegen.errors import StoreError, StoreUnavailableError
from cachegen.load_commands import EventLog
from cachegen.manifest import (
    MAX_MANIFEST_BYTES,
    Manifest,
    ManifestChunk,
    manifest_name,
    tokens_name,
    unpack_manifest,
)
from cachegen.model import LanguageModel
from cachegen.pipeline import context_identities
from cachegen.profile import Profile
from cachegen.sources import Source
from cachegen.stage_clock import Stage, StageClock

_MAX_TOKENS_OBJECT_BYTES = 1 << 26  # 16 million tokens
# Between two tries, doubling from the first to the last of these: a server that restarts is back within seconds.
_BACKOFF_S = (0.1, 1.0)


@dataclass(frozen=True)
class Index:
    """What a load has to know before it can begin.

    Parameters
    ----------
    manifest : Manifest
        Of the context; not yet known to be that of the right model.
    token_ids : list of int
        Its tokens; not yet known to be the manifest's.
    rtt_s : float
        The shortest wait for an answer.
    """

    manifest: Manifest
    token_ids: list[int]
    rtt_s: float


class IndexFetch:
    """Asks for an index until it is there or there is no more time for it.

    Parameters
    ----------
    source : Source
        Where it is.
    clock : StageClock
        The request's; charged with waiting and fetching.
    log : EventLog
        Receives an ``index_failed`` event for each try that failed.
    """

    def __init__(self, source: Source, clock: StageClock, log: EventLog) -> None:
        self._source, self._clock, self._log = source, clock, log
        self._waited_s: list[float] = []
        self._arrived: dict[str, bytes] = {}

    async def fetch(self, context_key: bytes, token_ids: Sequence[int] | None, until_s: float) -> Index:
        """Return the index of a context.

        Parameters
        ----------
        context_key : bytes
            Which context.
        token_ids : sequence of int, optional
            Its tokens where the caller has them: then the manifest alone is fetched.
        until_s : float
            When to give up, on the clock.

        Raises
        ------
        StoreUnavailableError
            It is not there by then; the text has the last failure.
        ObjectNotFoundError, FormatError
            There is none, or it is damaged: asking again would not help.
        """
        names = [(manifest_name(context_key), MAX_MANIFEST_BYTES)]
        if token_ids is None:
            names.append((tokens_name(context_key), _MAX_TOKENS_OBJECT_BYTES))
        raw = await self._fetch_patiently(names, until_s)
        manifest = unpack_manifest(raw[0])
        found = unpack_tokens(raw[1], manifest.num_tokens) if token_ids is None else list(token_ids)
        return Index(manifest, found, min(self._waited_s))

    async def fetch_remains(self, context_key: bytes, until_s: float) -> tuple[bytes, bytes] | None:
        """Return a context's tokens object, and its manifest (or nothing) as it came, after :meth:`fetch` has failed.

        Returns
        -------
        tuple of bytes or None
            Nothing of it is verified. ``None``: no tokens by ``until_s``.
        """
        name = tokens_name(context_key)
        if name not in self._arrived:
            try:
                await self._fetch_patiently([(name, _MAX_TOKENS_OBJECT_BYTES)], until_s)
            except StoreError:
                return None
        return self._arrived[name], self._arrived.get(manifest_name(context_key), b"")

    async def _fetch_patiently(self, names: list[tuple[str, int]], until_s: float) -> list[bytes]:
        pause_s, longest_s = _BACKOFF_S
        failure = StoreUnavailableError(f"{names[0][0]}: no answer")
        tries = 0
        try:
            async with asyncio.timeout(max(0.0, until_s - self._clock.elapsed_s())):
                while True:
                    tries += 1
                    try:
                        return await self._fetch_together(names)
                    except StoreUnavailableError as error:
                        failure = error
                        self._log("index_failed", error=str(error))
                    await asyncio.sleep(pause_s)
                    pause_s = min(longest_s, 2 * pause_s)
        except TimeoutError:
            raise StoreUnavailableError(
                f"no index within {until_s:.1f} s of the request, at {tries} tries: {failure}"
            ) from failure

    async def _fetch_together(self, names: list[tuple[str, int]]) -> list[bytes]:
        """Fetch side by side, one round trip for all."""
        self._clock.network(Stage.WAIT)
        asked_s = self._clock.elapsed_s()

        def on_first_byte() -> None:
            self._clock.network(Stage.FETCH)
            self._waited_s.append(self._clock.elapsed_s() - asked_s)

        async def bring(name: str, max_bytes: int) -> bytes:
            self._arrived[name] = data = await self._source.fetch(name, max_bytes, on_first_byte)
            return data

        fetches = [asyncio.ensure_future(bring(*name)) for name in names]
        try:
            return await asyncio.gather(*fetches)
        finally:
            # where one has failed, the other must not go on behind the caller's back
            for fetch in fetches:
                fetch.cancel()
            await asyncio.gather(*fetches, return_exceptions=True)
            self._clock.network(Stage.WAIT)


def index_without_store(token_ids: Sequence[int], chunk_tokens: int, model: LanguageModel, profile: Profile) -> Index:
    """Return an index that lists no object, so that every chunk is recomputed."""
    identities = context_identities(token_ids, chunk_tokens, model.fingerprint, profile.hash)
    manifest = Manifest(
        context_key=identities[-1][1].chunk_key,
        model_fingerprint=model.fingerprint,
        profile_hash=profile.hash,
        num_tokens=len(token_ids),
        chunk_tokens=chunk_tokens,
        num_layers=model.shape.num_layers,
        num_kv_heads=model.shape.num_kv_heads,
        head_dim=model.shape.head_dim,
        dtype=str(model.dtype).removeprefix("torch."),
        chunks=tuple(
            ManifestChunk(identity.chunk_key, first, end - first, {}) for (first, end), identity in identities
        ),
    )
    return Index(manifest, list(token_ids), 0.0)
