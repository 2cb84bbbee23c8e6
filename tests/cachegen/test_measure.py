"""The measured cost of recomputation."""

import pytest
from tiny_models import random_tokens, tiny_llama

from cachegen import InvalidInputError, measure_recompute


@pytest.mark.parametrize(("tokens", "chunk_tokens"), [(100, 30), (30, 30), (20, 64), (2, 2)])
def test_any_context_of_two_tokens_gives_a_cost(tokens, chunk_tokens):
    cost = measure_recompute(tiny_llama(), random_tokens(tokens), chunk_tokens)
    assert cost.predict(0, tokens) > 0
    assert cost.predict(64, 10) >= cost.predict(0, 10)


def test_one_token_is_refused():
    with pytest.raises(InvalidInputError, match="two tokens at least, not 1"):
        measure_recompute(tiny_llama(), [1], 8)
