"""The part of a text that a command runs a model over: what the model takes, and no more read than that needs."""

import pytest
from families import MAX_TOKENS, model_of

from cachegen import InvalidInputError
from cachegen.commands.texts import CHARACTERS_PER_TOKEN, held_out_tokens
from cachegen.held_out import HeldOutText

HALF = MAX_TOKENS // 2


@pytest.fixture
def held_out(tmp_path):
    """Token ids and notes of a text in front of a model that holds as many tokens as a continuation has elsewhere."""

    def run(text, context_tokens):
        path = tmp_path / "text.txt"
        path.write_text(text, encoding="utf-8")
        notes = []
        return held_out_tokens(model_of("llama"), path, context_tokens, notes.append), notes

    return run


def test_a_context_is_cut_to_what_the_model_holds_and_said_to_be(held_out):
    token_ids, notes = held_out("word " * 1000, 2048)
    assert len(token_ids) == MAX_TOKENS
    assert notes == [f"llama: holds 256 tokens, so at most {HALF} of context: {HALF} are predicted behind it"]
    assert HeldOutText(model_of("llama"), token_ids).cache.num_tokens == HALF


def test_a_short_text_is_said_to_be_short(held_out):
    token_ids, notes = held_out("x" * (HALF + 9), 50)
    assert len(token_ids) == HALF + 9
    assert notes == [notes[0]]
    assert notes[0].endswith("text.txt: only 9 tokens of context")


def test_a_context_that_fits_needs_no_note(held_out):
    token_ids, notes = held_out("x" * 1000, 50)
    assert len(token_ids) == HALF + 50
    assert notes == []


def test_a_text_without_a_context_is_refused_by_its_file(held_out):
    with pytest.raises(InvalidInputError, match=f"text.txt: {HALF} tokens; more than {HALF} are needed"):
        held_out("x" * HALF, 50)


def test_no_more_of_a_text_is_tokenized_than_can_be_used(held_out, monkeypatch):
    seen = []
    tokenize = model_of("llama").tokenize
    monkeypatch.setattr(model_of("llama"), "tokenize", lambda text: seen.append(len(text)) or tokenize(text))
    held_out("x" * 100_000, 50)
    assert seen == [(50 + HALF) * CHARACTERS_PER_TOKEN]
