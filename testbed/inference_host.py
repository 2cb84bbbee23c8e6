"""The process on the ``gpu`` host: holds the model, stores contexts offline, then serves requests over the link.

It reads one JSON object a line from standard input and answers with such lines on standard output:
``progress``, ``ready``, ``event``, ``result`` and ``error``. It ends when its input ends.
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any, TextIO

from cachegen import (
    CachegenError,
    ContextLoader,
    InvalidInputError,
    LinkKnowledge,
    LoadedContext,
    Stage,
    StageClock,
    UnsupportedModelError,
    compare_logits,
    make_controller,
)
from testbed.answer import answer_question
from testbed.methods import make_method
from testbed.near_cache import open_servers
from testbed.prepare import Prepared, prepare
from testbed.trace import load_trace
from testbed.virtual_link import LinkFuture


class Answers:
    """Writes answers as JSON lines; from any thread, one line at a time."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __call__(self, kind: str, **fields: Any) -> None:
        """Send one answer."""
        # a single write of a whole line: two threads cannot mix theirs
        self._stream.write(json.dumps({"type": kind, **fields}) + "\n")
        self._stream.flush()


async def serve_request(
    prepared: Prepared, message: dict[str, Any], answer: Answers, links: dict[str, LinkKnowledge]
) -> None:
    """Serve one request at its scheduled arrival, then compare its cache with the uncompressed one.

    TTFT runs from ``arrival_s`` to the choice of the first token; the comparison comes after. ``links`` holds what each
    method has learnt of the link so far.
    """
    context = prepared.contexts[message["context"]]
    method = make_method(message["method"])
    source = open_servers(message["store_url"], message["near_url"])
    clock = StageClock(message["arrival_s"])

    def log(event: str, **fields: Any) -> None:
        answer(
            "event",
            request=message["request"],
            method=method.name,
            event=event,
            t_s=clock.elapsed_s(),
            **fields,
        )

    stored = context.stored[method.reduction]
    loader = ContextLoader(prepared.model, prepared.profile, source, prepared.costs_of(stored), log)
    future = LinkFuture(load_trace(message["trace"]), message["trace_offset_s"])
    controller = make_controller(method.controller, method.encodings, future)
    await asyncio.sleep(max(0.0, message["arrival_s"] - time.monotonic()))
    result: dict[str, Any] = {"status": "ok", "error": ""}
    try:
        async with asyncio.timeout(message["timeout_s"]):
            loaded = await loader.load(
                stored.key,
                controller,
                method.encodings,
                message["slo_s"],
                clock,
                len(context.question_ids),
                links.get(method.name),
            )
        links[method.name] = loaded.link
        loaded.cache.skipped_tokens = stored.skipped_tokens
        first_token = _first_token(prepared, loaded, context.question_ids, clock)
    except TimeoutError:
        result |= {"status": "timed_out", "error": f"not done after {message['timeout_s']} s"}
    except CachegenError as error:
        result |= {"status": "failed", "error": f"{type(error).__name__}: {error}"}
    else:
        stages_s = clock.stop()
        result |= {
            "ttft_ms": 1e3 * sum(stages_s.values()),
            "stages_ms": {str(stage): 1e3 * spent_s for stage, spent_s in stages_s.items()},
            "wasted_bytes": loaded.wasted_bytes,
            "levels": {name: loaded.chunk_sources.count(name) for name in sorted(set(loaded.chunk_sources))},
            "first_token": first_token,
            **_quality(prepared, loaded, context.index, stored.num_tokens),
            **_score(prepared, loaded, context.index),
        }
    finally:
        await source.close()
    arrived = {"bytes": source.received_bytes, "near_bytes": source.near_bytes}
    answer("result", request=message["request"], method=method.name, **arrived, **result)


def _first_token(prepared: Prepared, loaded: LoadedContext, question_ids: list[int], clock: StageClock) -> int:
    with clock.compute(Stage.QUESTION_PREFILL):
        return int(prepared.model.prefill(loaded.cache, question_ids).argmax())


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


def main() -> None:
    """Answer messages until the input ends."""
    # Libraries print; only this program's own lines may reach the reader.
    answer = Answers(os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8"))
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    try:
        _run(sys.stdin, answer)
    except CachegenError as error:
        refused = isinstance(error, InvalidInputError | UnsupportedModelError)
        answer("error", error=str(error), refused=refused)


def _run(messages: TextIO, answer: Answers) -> None:
    prepared = prepare(json.loads(messages.readline()), _progress(answer))
    answer("ready", **prepared.summary())
    links: dict[str, LinkKnowledge] = {}
    for line in messages:
        asyncio.run(serve_request(prepared, json.loads(line), answer, links))


def _progress(answer: Answers) -> Callable[[str, int, int], None]:
    return lambda step, done, total: answer("progress", step=step, done=done, total=total)


if __name__ == "__main__":
    main()
