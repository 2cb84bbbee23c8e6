"""How a text is cut into context, question and held-out tokens."""

from types import SimpleNamespace

import pytest

from cachegen import InvalidInputError
from testbed.config import QUALITY_TOKENS
from testbed.prepare import split_tokens
from testbed.workload import ContextText

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
