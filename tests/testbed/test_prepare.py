"""How a text is cut into context, question and held-out tokens."""

from types import SimpleNamespace

import pytest

from cachegen import InvalidInputError, calculate_kv, default_model_path, load_model
from testbed.answer import ANSWER_TOKENS, answer_question
from testbed.config import QUALITY_TOKENS
from testbed.contexts import ContextText, Task
from testbed.prepare import split_tokens

# all that cutting needs of a model: its tokens (a word each here) and its length
MODEL = SimpleNamespace(tokenize=lambda text: list(range(len(text.split()))), max_tokens=1000)


def text_of(context_words, question_words):
    return ContextText("it", "word " * context_words, "word " * question_words)


def test_the_context_ends_where_the_held_out_tokens_begin():
    context, behind = split_tokens(text_of(500, 9), MODEL, 300)

    assert (context, behind) == (list(range(300)), list(range(300, 300 + QUALITY_TOKENS + 1)))


def test_a_short_text_gives_up_its_end():
    context, behind = split_tokens(text_of(100, 9), MODEL, 300)

    assert (len(context), len(behind)) == (100 - QUALITY_TOKENS - 1, QUALITY_TOKENS + 1)


@pytest.mark.parametrize(
    ("words", "context_tokens", "message"),
    [
        ((66, 9), 300, "it: 66 tokens; more than 66 are needed"),
        ((2000, 9), 936, "it: 936 tokens and 65 behind them exceed the model's 1000"),
        ((2000, 400), 601, "it: 601 tokens and 400 behind them exceed the model's 1000"),
    ],
)
def test_what_does_not_fit_is_refused(words, context_tokens, message):
    with pytest.raises(InvalidInputError, match=message):
        split_tokens(text_of(*words), MODEL, context_tokens)


def task_text(context_words, question_words=9):
    return ContextText("it", "word " * context_words, "word " * question_words, Task(("two words",), "f1"))


def test_a_context_with_an_answer_stays_whole_and_question_and_answer_follow_it():
    context, behind = split_tokens(task_text(200), MODEL, 300)

    # a word each; the tokens here are the words' places
    assert (context, behind) == (list(range(200)), list(range(9 + 2)))


def test_a_context_with_an_answer_that_is_too_long_loses_its_middle():
    context, _ = split_tokens(task_text(500), MODEL, 301)

    assert context == [*range(151), *range(350, 500)]


def test_room_for_the_answer_is_counted():
    split_tokens(task_text(1000 - 9 - ANSWER_TOKENS), MODEL, 1000)
    with pytest.raises(InvalidInputError, match="it: 960 tokens and 41 behind them exceed the model's 1000"):
        split_tokens(task_text(1000 - 9 - ANSWER_TOKENS + 1), MODEL, 1000)


def test_a_question_that_is_too_long_to_measure_on_is_cut():
    _, behind = split_tokens(task_text(100, 200), MODEL, 300)
    assert len(behind) == QUALITY_TOKENS + 1


def test_the_answer_of_a_cache_is_greedy_scored_and_leaves_the_cache_as_it_was():
    model = load_model(default_model_path())
    cache = calculate_kv(model, "The colour of the house is blue. The colour of the door is red.")
    question, before = model.tokenize(" The colour of the door is"), cache.num_tokens
    greedy = model.generate(cache, question, max_new_tokens=ANSWER_TOKENS, do_sample=False)

    answer = answer_question(model, cache, question, Task(("no", "red"), "topic"))

    assert (answer.text, answer.score) == (model.detokenize(greedy), 1)
    assert cache.num_tokens == before
    assert answer_question(model, cache, question, Task(("violet",), "topic")).score == 0
