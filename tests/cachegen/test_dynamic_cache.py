"""What transformers' generate can do, it does behind a context's cache, and the context is left as it was."""

import copy

import pytest
import torch
from families import SUPPORTED, context_of, model_of
from tiny_models import random_tokens
from transformers import DynamicCache

from cachegen import InvalidInputError, calculate_kv

# Grouped, learned positions, linear biases, a window shorter than the context, mixed layers, layers without their own.
FAMILIES = ["llama", "gpt2", "bloom", "mistral (sliding)", "gemma2", "gemma3n_text"]
CONTEXT, QUESTION = 50, random_tokens(5, seed=9)


def cache_of(family):
    return calculate_kv(model_of(family), context_of(CONTEXT))


def generated(network, cache=None, **options):
    """New tokens of each row, of the context and the question, the context behind a cache or not."""
    ids = torch.tensor([[*context_of(CONTEXT), *QUESTION]])
    behind = {} if cache is None else {"cache": cache}
    options = {"max_new_tokens": 6, "do_sample": False, **options}
    output = network.generate(ids, attention_mask=torch.ones_like(ids), use_cache=True, **behind, **options)
    return output[:, ids.shape[1] :].tolist()


@pytest.mark.parametrize("family", SUPPORTED)
def test_the_copy_is_transformers_own_and_several_calls_from_one_context_do_not_meet(family):
    network, cache = model_of(family).network, cache_of(family)
    before, own = cache.chunk(0, CONTEXT), generated(network)
    for _ in range(2):
        taken = cache.to_dynamic_cache()
        assert type(taken) is DynamicCache
        assert taken.get_seq_length() == CONTEXT
        assert generated(network, taken) == own
        assert taken.get_seq_length() == CONTEXT + len(QUESTION) + 5
    assert cache.num_tokens == cache.past.get_seq_length() == CONTEXT
    assert torch.equal(cache.chunk(0, CONTEXT), before)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_cache_itself_serves_one_sequence_and_truncate_brings_the_context_back(family):
    network, cache = model_of(family).network, cache_of(family)
    own = generated(network)
    for _ in range(2):
        assert generated(network, cache.past) == own
        assert cache.past.get_seq_length() > CONTEXT
        cache.truncate(cache.num_tokens)
        assert cache.past.get_seq_length() == CONTEXT


@pytest.mark.parametrize("family", FAMILIES)
def test_beam_search_behind_the_copy_is_that_on_the_whole_sequence(family):
    network, cache = model_of(family).network, cache_of(family)
    options = {"num_beams": 3, "num_return_sequences": 2}
    assert generated(network, cache.to_dynamic_cache(3), **options) == generated(network, **options)


@pytest.mark.parametrize("family", FAMILIES)
def test_several_sampled_sequences_behind_the_copy_are_those_on_the_whole_sequence(family):
    network, cache = model_of(family).network, cache_of(family)
    options = {"do_sample": True, "num_return_sequences": 4}
    torch.manual_seed(3)
    own = generated(network, **options)
    torch.manual_seed(3)
    assert generated(network, cache.to_dynamic_cache(4), **options) == own
    assert len({tuple(row) for row in own}) > 1


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("in_place", [False, True])
def test_assisted_generation_from_the_question_crops_what_it_guessed_wrong(family, in_place):
    """Guesses come from another model with random weights: most are wrong."""
    network, cache, assistant = model_of(family).network, cache_of(family), model_of("qwen3").network
    taken = cache.past if in_place else cache.to_dynamic_cache()
    cropped = []
    for layer in taken.layers[:1]:
        layer.crop = lambda tokens_to_remove, crop=layer.crop: (
            cropped.append(tokens_to_remove) or crop(tokens_to_remove)
        )
    ids, every = torch.tensor([QUESTION]), torch.ones(1, CONTEXT + len(QUESTION), dtype=torch.long)
    options = {"max_new_tokens": 6, "do_sample": False, "use_cache": True, "assistant_model": assistant}
    output = network.generate(ids, attention_mask=every, cache=taken, **options)
    assert output[:, len(QUESTION) :].tolist() == generated(network)
    assert min(cropped) < 0


@pytest.mark.parametrize("in_place", [False, True])
def test_crop_and_reset_forget_tokens_as_transformers_does(in_place):
    cache = cache_of("llama")
    taken = cache.past if in_place else cache.to_dynamic_cache()
    taken.crop(-10)
    assert taken.get_seq_length() == taken.layers[0].keys.shape[2] == CONTEXT - 10
    taken.crop(0)
    assert taken.get_seq_length() == CONTEXT - 10
    taken.reset()
    assert taken.get_seq_length() == 0
    assert generated(model_of("llama").network, taken) == generated(model_of("llama").network)


@pytest.mark.parametrize("tokens_to_remove", [5, -CONTEXT - 1])
def test_a_crop_that_says_nothing_sensible_is_refused(tokens_to_remove):
    with pytest.raises(InvalidInputError, match=f"of {CONTEXT}; not {tokens_to_remove}"):
        cache_of("llama").past.crop(tokens_to_remove)


@pytest.mark.parametrize(
    "act",
    [
        lambda past: past.batch_repeat_interleave(2),
        lambda past: past.batch_select_indices(torch.tensor([0, 0])),
        lambda past: past.reorder_cache(torch.tensor([0, 0])),
        lambda past: generated(model_of("llama").network, past, num_beams=2),
    ],
    ids=["repeat", "select", "reorder", "beams"],
)
def test_several_rows_in_the_shared_buffer_are_refused_and_the_text_says_what_to_do(act):
    with pytest.raises(InvalidInputError, match=r"a KVCache holds one sequence, not .*to_dynamic_cache"):
        act(cache_of("llama").past)


def test_rows_of_the_copy_are_selected_and_repeated():
    cache = cache_of("llama")
    taken = cache.to_dynamic_cache(2)
    taken.batch_repeat_interleave(2)
    assert taken.layers[1].keys.shape[0] == 4
    taken.batch_select_indices(torch.tensor([3]))
    assert torch.equal(taken.layers[1].keys, cache.past.layers[1].keys)


@pytest.mark.parametrize("in_place", [False, True])
def test_a_static_cache_beside_this_one_is_refused(in_place):
    cache = cache_of("llama")
    with pytest.raises(ValueError, match="Passing both `cache_implementation`"):
        generated(
            model_of("llama").network,
            cache.past if in_place else cache.to_dynamic_cache(),
            cache_implementation="static",
        )


@pytest.mark.parametrize("batch_size", [0, -1])
def test_a_copy_of_no_rows_is_refused(batch_size):
    with pytest.raises(InvalidInputError, match=f"batch_size is {batch_size}"):
        cache_of("llama").to_dynamic_cache(batch_size)


def test_the_copy_of_an_empty_cache_is_empty():
    model = model_of("llama")
    taken = model.new_cache(4).to_dynamic_cache()
    assert taken.get_seq_length() == 0
    assert generated(model.network, taken) == generated(model.network)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_deep_copy_as_transformers_guide_makes_it_is_independent(family):
    network, cache = model_of(family).network, cache_of(family)
    twin = copy.deepcopy(cache)
    assert generated(network, copy.deepcopy(cache.past)) == generated(network)
    generated(network, twin.past)
    twin.truncate(0)
    twin.append(torch.zeros(cache.shape.chunk_shape(CONTEXT)), context_of(CONTEXT))
    assert cache.num_tokens == cache.past.get_seq_length() == CONTEXT
    assert generated(network, cache.past) == generated(network)
