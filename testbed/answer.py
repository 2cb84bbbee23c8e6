"""The answer that a cache gives to a context's question, and how good it is."""

from collections.abc import Sequence
from dataclasses import dataclass

from cachegen import KVCache, LanguageModel
from testbed.contexts import Task
from testbed.scores import score_answer

ANSWER_TOKENS = 32


@dataclass(frozen=True)
class Answer:
    """A text and its score, from 0 to 1."""

    text: str
    score: float


def answer_question(model: LanguageModel, cache: KVCache, question_ids: Sequence[int], task: Task) -> Answer:
    """Answer greedily, in ``ANSWER_TOKENS`` tokens at most; the cache stays as it was."""
    text = model.detokenize(greedy_tokens(model, cache, question_ids))
    return Answer(text, score_answer(task.score, text, task.expected))


def greedy_tokens(model: LanguageModel, cache: KVCache, question_ids: Sequence[int]) -> list[int]:
    """The most likely token each time, up to the model's end token; a prefill at a time, behind any cache there is."""
    held_tokens, ends = cache.num_tokens, _end_tokens(model)
    token_ids: list[int] = []
    try:
        logits = model.prefill(cache, question_ids)
        while len(token_ids) < ANSWER_TOKENS and (token := int(logits.argmax())) not in ends:
            token_ids.append(token)
            logits = model.prefill(cache, [token])
    finally:
        cache.truncate(held_tokens)
    return token_ids


def _end_tokens(model: LanguageModel) -> set[int]:
    stated = model.network.generation_config.eos_token_id
    return set(stated) if isinstance(stated, list) else {stated}
