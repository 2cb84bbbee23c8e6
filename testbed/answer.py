"""The answer that a cache gives to a context's question, and how good it is."""

from collections.abc import Sequence
from dataclasses import dataclass

from cachegen import KVCache, LanguageModel, generate_with_kv
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
    made = generate_with_kv(model, cache, question_ids, max_new_tokens=ANSWER_TOKENS, do_sample=False)
    return Answer(made.text, score_answer(task.score, made.text, task.expected))
