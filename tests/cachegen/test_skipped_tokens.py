"""A cache that holds some of a text's tokens: what follows stands at its place in the text."""

import pytest
import torch
from tiny_models import random_tokens, tiny_gpt2, tiny_llama

from cachegen import InvalidInputError, UnsupportedModelError, calculate_kv, generate_with_kv

CONTEXT, QUESTION = random_tokens(40), random_tokens(6, seed=5)
KEPT = [place for place in range(40) if place % 3]


def thinned(model):
    """The cache of a context, and one of those of its entries that are kept."""
    whole = calculate_kv(model, CONTEXT)
    small = model.new_cache(len(KEPT))
    small.append(whole.chunk(0, 40)[:, :, KEPT], [CONTEXT[place] for place in KEPT])
    small.skipped_tokens = 40 - len(KEPT)
    return whole, small


def masked_logits(model, whole):
    """Transformers' own: the whole cache, with the entries that were left out hidden."""
    mask = torch.zeros(1, 46, dtype=torch.long)
    mask[0, [*KEPT, *range(40, 46)]] = 1
    with torch.inference_mode():
        return model.network(
            torch.tensor([QUESTION]),
            cache=whole.to_dynamic_cache(),
            attention_mask=mask,
            position_ids=torch.arange(40, 46)[None],
            use_cache=True,
        ).logits[0]


@pytest.mark.parametrize("make", [tiny_llama, tiny_gpt2])
def test_logits_are_those_of_the_whole_cache_with_the_others_hidden(make):
    model = make()
    whole, small = thinned(model)
    expected = masked_logits(model, whole)

    torch.testing.assert_close(model.continuation_logits(small, QUESTION), expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(model.prefill(small, QUESTION), expected[-1], rtol=1e-4, atol=1e-5)
    # token by token too: each new one counts
    _, small = thinned(model)
    one_by_one = torch.stack([model.prefill(small, [token]) for token in QUESTION])
    torch.testing.assert_close(one_by_one, expected, rtol=1e-4, atol=1e-5)

    small.truncate(len(KEPT))
    small.skipped_tokens = 0
    difference = model.continuation_logits(small, QUESTION) - expected
    assert float(difference.abs().max()) > 1e-4


def test_skipped_tokens_count_against_the_models_length():
    model = tiny_llama()
    _, small = thinned(model)
    small.skipped_tokens = 512 - len(KEPT) - 5
    model.continuation_logits(small, QUESTION[:5])
    with pytest.raises(InvalidInputError, match="513 tokens are more than"):
        model.continuation_logits(small, QUESTION)


def test_generate_refuses_such_a_cache():
    model = tiny_llama()
    _, small = thinned(model)
    for caches, questions in ((small, QUESTION), ([small, small], [QUESTION, QUESTION])):
        with pytest.raises(InvalidInputError, match="a cache with skipped tokens"):
            generate_with_kv(model, caches, questions, max_new_tokens=1)


def test_a_model_that_cannot_be_told_positions_is_refused(monkeypatch):
    model = tiny_llama()
    _, small = thinned(model)
    forward = model.network.forward
    monkeypatch.setattr(model.network, "forward", lambda ids, **options: forward(ids, **options))
    with pytest.raises(UnsupportedModelError, match="takes no position_ids"):
        model.prefill(small, QUESTION)
