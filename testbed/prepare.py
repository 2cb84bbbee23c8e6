"""What happens before the first request: load the model, store the contexts offline, warm up, measure costs."""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from cachegen import (
    InvalidInputError,
    KVCache,
    LanguageModel,
    LoadCosts,
    Manifest,
    Profile,
    RecomputeCost,
    cached_profile,
    calculate_kv,
    default_model_path,
    get_kv,
    load_model,
    measure_recompute,
    parse_encoding,
    store_kv,
    warm_up,
)
from testbed.answer import ANSWER_TOKENS, Answer, answer_question
from testbed.config import QUALITY_TOKENS
from testbed.contexts import ContextText, Task, load_contexts
from testbed.methods import make_method
from testbed.reductions import parse_reduction

# Longer than any deadline, and a number that JSON has.
_NO_RECOMPUTE = RecomputeCost(call_s=1e9, token_s=0.0, attention_s=0.0)

OnStep = Callable[[str, int, int], None]


@dataclass(frozen=True)
class StoredContext:
    """A context as it lies in the store: whole, or reduced.

    Parameters
    ----------
    num_tokens, skipped_tokens : int
        Entries of its KV cache, and tokens of the context that have none though their places count.
    has_text : bool
        Whether a chunk of it can be recomputed.
    """

    key: bytes
    num_tokens: int
    skipped_tokens: int
    has_text: bool
    manifest: Manifest


@dataclass(frozen=True)
class PreparedContext:
    """A context in the store, with what its requests and their evaluation need.

    Parameters
    ----------
    token_ids : list of int
        Of the whole context.
    stored : dict
        By the name of the reduction; empty: the whole context.
    continuation_ids : list of int
        The tokens that follow the context, for the quality comparison: in its text, where they are held out, or the
        question and the expected answer where there is one.
    reference_logits : torch.Tensor
        After each continuation token but the last, under the uncompressed cache: ``[tokens, vocabulary]``.
    task : Task or None
        What the answer should be.
    reference_answer : Answer or None
        The uncompressed cache's; None without a task.
    """

    index: int
    name: str
    token_ids: list[int]
    question_ids: list[int]
    continuation_ids: list[int]
    reference_logits: torch.Tensor
    task: Task | None
    reference_answer: Answer | None
    stored: dict[str, StoredContext]


@dataclass(frozen=True)
class Prepared:
    """All that the inference host serves requests with; ``question_s`` is a question's prefill behind a context."""

    model: LanguageModel
    profile: Profile
    contexts: list[PreparedContext]
    costs: LoadCosts
    question_s: float

    def costs_of(self, stored: StoredContext) -> LoadCosts:
        """What loading it costs; where nothing can be recomputed, no controller may think so."""
        return self.costs if stored.has_text else replace(self.costs, recompute=_NO_RECOMPUTE)

    def summary(self) -> dict[str, Any]:
        """For the manifest of the run."""
        return {
            "model": {
                "name": self.model.name,
                "fingerprint": self.model.fingerprint.hex(),
                "dtype": str(self.model.dtype).removeprefix("torch."),
                "device": str(self.model.device),
                "kv_shape": asdict(self.model.shape),
                "threads": torch.get_num_threads(),
            },
            "profile_hash": self.profile.hash.hex(),
            "costs": {
                "recompute": asdict(self.costs.recompute),
                "reserve_s": self.costs.reserve_s,
                "decode_s_per_token": dict(self.costs.decode_s_per_token),
                "question_s": self.question_s,
            },
            "contexts": [
                {
                    "name": context.name,
                    "tokens": len(context.token_ids),
                    "stored": {name: _describe(stored) for name, stored in context.stored.items()},
                    **_reference(context),
                }
                for context in self.contexts
            ],
        }


def prepare(settings: dict[str, Any], on_step: OnStep) -> Prepared:
    """Make everything ready that must not count as TTFT.

    Parameters
    ----------
    settings : dict
        Of a ``RunConfig``, and ``store``: the folder that the storage host serves.
    on_step : callable
        Called with (step, done, total).
    """
    on_step("load model", 0, 1)
    path = settings["model"] or default_model_path()
    model = load_model(path)
    texts = load_contexts(*(settings[name] for name in ("contexts", "num_contexts", "context_tokens", "seed")))
    encodings = encodings_by_reduction(settings["methods"])
    profile = cached_profile(
        model,
        lambda done, total: on_step("calibrate codec", done, total),
        # several times the work of the other codecs' tables: only for those who ask
        transform=any(parse_encoding(name).codec == "transform" for names in encodings.values() for name in names),
    )
    contexts = []
    for index, text in enumerate(texts):
        on_step("store contexts", index, len(texts))
        contexts.append(_store_context(index, text, model, profile, encodings, settings))
    on_step("warm up", 0, 1)
    costs, question_s = _warm_up(model, profile, contexts, encodings, settings)
    on_step("warm up", 1, 1)
    return Prepared(model, profile, contexts, costs, question_s)


def encodings_by_reduction(methods: Sequence[str]) -> dict[str, list[str]]:
    """Each encoding that some method may ask for, once, by the reduction of the context that it is of."""
    wanted: dict[str, dict[str, None]] = {}
    for method in map(make_method, methods):
        wanted.setdefault(method.reduction, {}).update(dict.fromkeys(method.encodings))
    return {reduction: list(names) for reduction, names in wanted.items()}


def _store_context(
    index: int,
    text: ContextText,
    model: LanguageModel,
    profile: Profile,
    encodings: dict[str, list[str]],
    settings: dict[str, Any],
) -> PreparedContext:
    token_ids, continuation_ids = split_tokens(text, model, settings["context_tokens"])
    cache = calculate_kv(model, token_ids, settings["chunk_tokens"])
    question_ids = model.tokenize(text.question)
    return PreparedContext(
        index=index,
        name=text.name,
        token_ids=token_ids,
        question_ids=question_ids,
        continuation_ids=continuation_ids,
        reference_logits=model.continuation_logits(cache, continuation_ids[:-1]),
        task=text.task,
        reference_answer=answer_question(model, cache, question_ids, text.task) if text.task else None,
        stored={
            reduction: _store(_reduce(reduction, model, cache, settings), reduction, model, profile, names, settings)
            for reduction, names in encodings.items()
        },
    )


def _reduce(reduction: str, model: LanguageModel, cache: KVCache, settings: dict[str, Any]) -> KVCache:
    spec = parse_reduction(reduction)
    return cache if spec is None else spec.reduction.reduce(model, cache, spec.share, settings["chunk_tokens"])


def _store(
    cache: KVCache,
    reduction: str,
    model: LanguageModel,
    profile: Profile,
    encodings: list[str],
    settings: dict[str, Any],
) -> StoredContext:
    # "raw" where no method streams anything: text alone needs the manifest and the tokens all the same
    manifest = store_kv(settings["store"], model, cache, encodings or ["raw"], profile, settings["chunk_tokens"])
    spec = parse_reduction(reduction)
    has_text = spec is None or spec.reduction.has_text
    return StoredContext(manifest.context_key, cache.num_tokens, cache.skipped_tokens, has_text, manifest)


def split_tokens(text: ContextText, model: LanguageModel, context_tokens: int) -> tuple[list[int], list[int]]:
    """Cut a text into the context and the tokens behind it.

    Without a task the text's own next tokens are held out. With one the text stays whole, and what follows it is the
    question and the expected answer; too long a text loses its middle, as LongBench does it.

    Raises
    ------
    InvalidInputError
        The text is too short to hold out anything, or context, question and answer exceed the model's length.
    """
    context_ids, continuation_ids = (
        _task_tokens(text, text.task, model, context_tokens) if text.task else _held_out(text, model, context_tokens)
    )
    behind = max(len(continuation_ids), len(model.tokenize(text.question)) + (ANSWER_TOKENS if text.task else 0))
    if model.max_tokens and len(context_ids) + behind > model.max_tokens:
        raise InvalidInputError(
            f"context {text.name}: {len(context_ids)} tokens and {behind} behind them exceed the model's "
            f"{model.max_tokens}"
        )
    return context_ids, continuation_ids


def _task_tokens(
    text: ContextText, task: Task, model: LanguageModel, context_tokens: int
) -> tuple[list[int], list[int]]:
    token_ids = model.tokenize(text.text)
    if len(token_ids) > context_tokens:
        tail = context_tokens // 2
        token_ids = token_ids[: context_tokens - tail] + token_ids[-tail:]
    behind = model.tokenize(f"{text.question} {task.expected[0]}")[: QUALITY_TOKENS + 1]
    if len(token_ids) < 2 or len(behind) < 2:
        raise InvalidInputError(f"context {text.name}: context, and question with answer, need two tokens each")
    return token_ids, behind


def _held_out(text: ContextText, model: LanguageModel, context_tokens: int) -> tuple[list[int], list[int]]:
    token_ids = model.tokenize(text.text)
    held_out = QUALITY_TOKENS + 1  # the last one is only predicted
    length = min(context_tokens, len(token_ids) - held_out)
    if length < 2:
        raise InvalidInputError(
            f"context {text.name}: {len(token_ids)} tokens; more than {held_out + 1} are needed, since {held_out} are "
            "held out to measure quality"
        )
    return token_ids[:length], token_ids[length : length + held_out]


def _warm_up(
    model: LanguageModel,
    profile: Profile,
    contexts: list[PreparedContext],
    encodings: dict[str, list[str]],
    settings: dict[str, Any],
) -> tuple[LoadCosts, float]:
    """Run every path once, so that nothing is compiled or first touched inside a TTFT; measure as it goes.

    Returns costs, and the seconds of the question's prefill.
    """
    warm_up()
    longest = max(contexts, key=lambda context: len(context.token_ids))
    reserve_s = question_s = 0.0
    decode_s: dict[str, float] = {}
    for stored, encoding in ((longest.stored[key], name) for key, names in encodings.items() for name in names):
        for _ in range(2):  # the first round touches memory and files for the first time
            started_s = time.perf_counter()
            cache = get_kv(settings["store"], model, stored.key, encoding, profile)
            loaded_s = time.perf_counter()
            # on a cache that was just loaded, as in a request: what lies in the processor's caches matters
            model.prefill(cache, longest.question_ids)
            ended_s = time.perf_counter()
        decode_s[encoding] = (loaded_s - started_s) / stored.num_tokens
        question_s = max(question_s, ended_s - loaded_s)
        reserve_s = max(reserve_s, (loaded_s - started_s) / len(stored.manifest.chunks) + ended_s - loaded_s)
    recompute = measure_recompute(model, longest.token_ids, settings["chunk_tokens"])
    # where nothing is streamed the question was not asked yet
    question_s = question_s or recompute.predict(len(longest.token_ids), len(longest.question_ids))
    return LoadCosts(recompute, reserve_s, decode_s), question_s


def _reference(context: PreparedContext) -> dict[str, Any]:
    """What the uncompressed cache answers, and how good that is: no codec can be blamed for a model that cannot."""
    if context.task is None or context.reference_answer is None:
        return {}
    return {
        "expected": list(context.task.expected),
        "reference_answer": context.reference_answer.text,
        "score_name": context.task.score,
        "reference_score": context.reference_answer.score,
    }


def _describe(stored: StoredContext) -> dict[str, Any]:
    return {"key": stored.key.hex(), "tokens": stored.num_tokens, "bytes": _total_bytes(stored.manifest)}


def _total_bytes(manifest: Manifest) -> dict[str, int]:
    names = manifest.chunks[0].encodings
    return {name: sum(chunk.encodings[name] for chunk in manifest.chunks) for name in names}
