"""Serves batches of requests on the inference host: at their arrivals, over kept connections, on one host of loads."""

import asyncio
import math
import time
from collections.abc import Callable, Iterator
from typing import Any

from cachegen import (
    AdmissionError,
    CachegenError,
    ContextLoader,
    HostLimits,
    HttpSource,
    KVCache,
    LinkKnowledge,
    LoadedContext,
    LoadHost,
    LoadLimits,
    Source,
    Stage,
    StageClock,
    compare_logits,
    make_controller,
)
from testbed.answer import answer_question
from testbed.counted_source import CountedSource
from testbed.methods import make_method
from testbed.near_cache import NearFirstSource
from testbed.oracle_ttft import least_rtt_s, oracle_ttft_s
from testbed.prepare import Prepared
from testbed.trace import Trace
from testbed.virtual_link import LinkFuture
from testbed.virtual_load import VirtualCosts


class KeptSources:
    """The servers that requests are served from, with connections that outlive a request: an inference server does not
    shake hands with its store for each.

    Parameters
    ----------
    most_requests : int
        That are served at once.
    """

    def __init__(self, most_requests: int) -> None:
        # an index takes two connections, and none may wait behind chunks
        self._connections = HostLimits().in_flight + 2 * most_requests
        self._sources: dict[str, HttpSource] = {}

    def source(self, url: str) -> HttpSource:
        """Return the one source of this server."""
        if url not in self._sources:
            self._sources[url] = HttpSource(url, connections=self._connections)
        return self._sources[url]

    async def close(self) -> None:
        """Close all connections."""
        for source in self._sources.values():
            await source.close()
        self._sources.clear()


class BatchService:
    """Serves requests that share a link: at their arrivals, over one source, on one host.

    Parameters
    ----------
    prepared : Prepared
        Model, contexts and costs.
    trace : Trace
        The link's, for the one method that may know what the link will do.
    message : dict
        What to serve: see ``testbed.experiment``.
    answer : Answers
        Receives events.
    links : dict
        What each method has learnt of the link so far.
    sources : KeptSources
        Closed by whoever made them.
    """

    def __init__(
        self,
        prepared: Prepared,
        trace: Trace,
        message: dict[str, Any],
        answer: Callable[..., None],
        links: dict[str, LinkKnowledge],
        sources: KeptSources,
    ) -> None:
        self._prepared, self._trace, self._message = prepared, trace, message
        self._answer, self._links = answer, links
        self._method = make_method(message["method"])
        self._store, near_url = sources.source(message["store_url"]), message["near_url"]
        self._near = None if near_url is None else sources.source(near_url)
        # a level that is fixed is measured to its end, however late, unless it is faults that are looked at
        measured = self._method.controller.startswith("fixed:") and not message["faults"]
        self._limits = LoadLimits(patience_s=math.inf) if measured else LoadLimits()
        self._host = LoadHost(message["sharing"], admission=message["admission"])
        self._results: list[dict[str, Any]] = [{} for _ in message["requests"]]
        # compared with the uncompressed ones when nobody waits for a first token any more
        self._loaded: dict[int, LoadedContext] = {}

    async def run(self) -> list[dict[str, Any]]:
        """Serve all; return their results in the order of the requests."""
        try:
            async with asyncio.TaskGroup() as tasks:
                places = range(len(self._results))
                if (users := self._message["users"]) is None:
                    for place in places:
                        tasks.create_task(self._serve(place, self._message["requests"][place]["arrival_s"]))
                else:
                    queue = iter(places)
                    for _ in range(users):
                        tasks.create_task(self._serve_from(queue))
        finally:
            await self._host.close()
        for place, result in enumerate(self._results):
            result["oracle_ttft_ms"] = 1e3 * self._oracle_s(place, result["arrival_s"])
        for place, loaded in self._loaded.items():
            context = self._message["requests"][place]["context"]
            held_tokens = self._prepared.contexts[context].stored[self._method.reduction].num_tokens
            self._results[place] |= _quality(self._prepared, loaded, context, held_tokens)
            self._results[place] |= _score(self._prepared, loaded, context)
        return self._results

    async def _serve_from(self, queue: Iterator[int]) -> None:
        """One user of a closed loop: the next question comes when the answer to the last one has begun."""
        for place in queue:
            await self._serve(place, max(0.0, time.monotonic() - self._message["origin_s"]))

    async def _serve(self, place: int, arrival_s: float) -> None:
        """Serve one request; TTFT runs from its arrival to the choice of the first token."""
        start_s = self._message["origin_s"] + arrival_s
        await asyncio.sleep(max(0.0, start_s - time.monotonic()))
        store, near = CountedSource(self._store), None if self._near is None else CountedSource(self._near)
        source, clock = store if near is None else NearFirstSource(near, store), StageClock(start_s)
        result: dict[str, Any] = {"status": "ok", "error": ""}
        try:
            async with asyncio.timeout(self._message["timeout_s"]):
                loaded = await self._load(place, arrival_s, source, clock)
        except TimeoutError:
            result |= {"status": "timed_out", "error": f"not done after {self._message['timeout_s']} s"}
        except AdmissionError as error:
            result |= {"status": "aborted", "error": str(error)}
        except CachegenError as error:
            result |= {"status": "failed", "error": f"{type(error).__name__}: {error}"}
        else:
            stages_s = clock.stop()
            result |= {
                "ttft_ms": 1e3 * sum(stages_s.values()),
                "stages_ms": {str(stage): 1e3 * spent_s for stage, spent_s in stages_s.items()},
                "wasted_bytes": loaded.wasted_bytes,
                "levels": {name: loaded.chunk_sources.count(name) for name in sorted(set(loaded.chunk_sources))},
                "first_token": loaded.followed,
            }
            self._loaded[place] = loaded
        ended_s = arrival_s + clock.elapsed_s()
        near_bytes = 0 if near is None else near.received_bytes
        arrived = {"bytes": store.received_bytes + near_bytes, "near_bytes": near_bytes}
        # of a request without a first token, all that arrived was in vain
        wasted = {"wasted_bytes": arrived["bytes"]}
        self._results[place] = {**wasted, **result, **arrived, "arrival_s": arrival_s, "ended_s": ended_s}

    async def _load(self, place: int, arrival_s: float, source: Source, clock: StageClock) -> LoadedContext:
        message, prepared, method = self._message, self._prepared, self._method
        request = message["requests"][place]
        context = prepared.contexts[request["context"]]
        stored = context.stored[method.reduction]

        def follow(cache: KVCache) -> int:
            cache.skipped_tokens = stored.skipped_tokens
            return _first_token(prepared, cache, context.question_ids, clock)

        def log(event: str, **fields: Any) -> None:
            named = {"request": request["request"], "method": message["label"]}
            self._answer("event", **named, event=event, t_s=clock.elapsed_s(), **fields)

        loader = ContextLoader(
            prepared.model, prepared.profile, source, prepared.costs_of(stored), log, self._limits, self._host
        )
        loaded = await loader.load(
            stored.key,
            make_controller(method.controller, method.encodings, self._future(arrival_s)),
            method.encodings,
            message["slo_s"],
            clock,
            len(context.question_ids),
            self._links.get(message["label"]),
            # a reduced context's tokens are not those of the text
            context.token_ids if message["tokens_at_gpu"] and not method.reduction else None,
            follow,
            message["estimator"],
        )
        self._links[message["label"]] = loaded.link
        return loaded

    def _future(self, arrival_s: float) -> LinkFuture:
        return LinkFuture(self._trace, self._trace_offset_s(arrival_s))

    def _trace_offset_s(self, arrival_s: float) -> float:
        return float(self._message["trace_offset_s"] + arrival_s) % self._trace.period_s

    def _oracle_s(self, place: int, arrival_s: float) -> float:
        """The least TTFT that a request could have had alone on the link, by the costs measured before the first."""
        context = self._prepared.contexts[self._message["requests"][place]["context"]]
        stored, question_s = context.stored[self._method.reduction], self._prepared.question_s
        costs = self._prepared.costs_of(stored)
        chunks = costs.options(stored.manifest, self._method.encodings)
        virtual = VirtualCosts(costs.decode_s, costs.reserve_s, question_s)
        message, future = self._message, self._future(arrival_s)
        delays_ms = message["delay_ms"], message["uplink_delay_ms"]
        rtt_s = least_rtt_s(self._trace, self._trace_offset_s(arrival_s), message["slo_s"], *delays_ms)
        return oracle_ttft_s(chunks, self._method.encodings, future, rtt_s, virtual)


def _first_token(prepared: Prepared, cache: KVCache, question_ids: list[int], clock: StageClock) -> int:
    with clock.compute(Stage.QUESTION_PREFILL):
        return int(prepared.model.prefill(cache, question_ids).argmax())


def _quality(prepared: Prepared, loaded: LoadedContext, index: int, held_tokens: int) -> dict[str, float]:
    context = prepared.contexts[index]
    loaded.cache.truncate(held_tokens)
    logits = prepared.model.continuation_logits(loaded.cache, context.continuation_ids[:-1])
    return compare_logits(context.reference_logits, logits, context.continuation_ids[1:]).to_json()


def _score(prepared: Prepared, loaded: LoadedContext, index: int) -> dict[str, Any]:
    context = prepared.contexts[index]
    if context.task is None:
        return {}
    answer = answer_question(prepared.model, loaded.cache, context.question_ids, context.task)
    return {"score": answer.score, "score_name": context.task.score, "answer": answer.text}
