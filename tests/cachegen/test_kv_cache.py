"""The cache that chunks are written into is the one that transformers reads."""

import gc
import weakref

import pytest
import torch
from tiny_models import random_tokens, tiny_llama

from cachegen import InvalidInputError, KVCache, KVShape

SHAPE = KVShape(num_layers=2, num_kv_heads=3, head_dim=5)


def random_chunk(tokens, seed=0):
    return torch.randn(SHAPE.chunk_shape(tokens), generator=torch.Generator().manual_seed(seed))


def test_chunks_come_back_as_they_were_appended_whatever_the_capacity():
    first, second = random_chunk(3), random_chunk(70, seed=1)
    cache = KVCache(SHAPE, torch.float32, capacity_tokens=1)
    cache.append(first, [1, 2, 3])
    cache.append(second, range(70))

    assert cache.num_tokens == 73
    assert cache.token_ids == [1, 2, 3, *range(70)]
    assert torch.equal(cache.chunk(0, 3), first)
    assert torch.equal(cache.chunk(3, 73), second)


def test_transformers_layers_show_what_was_appended():
    chunk = random_chunk(4)
    cache = KVCache(SHAPE, torch.float32)
    cache.append(chunk, range(4))

    for layer in range(SHAPE.num_layers):
        assert torch.equal(cache.past.layers[layer].keys[0], chunk[layer, 0].transpose(0, 1))
        assert torch.equal(cache.past.layers[layer].values[0], chunk[layer, 1].transpose(0, 1))
    assert cache.past.get_seq_length() == 4


def test_truncate_forgets_tokens_and_their_keys():
    cache = KVCache(SHAPE, torch.float32)
    cache.append(random_chunk(6), range(6))
    cache.truncate(2)

    assert cache.token_ids == [0, 1]
    assert cache.past.get_seq_length() == 2
    with pytest.raises(InvalidInputError, match=r"\[0, 3\) are not in a cache of 2 tokens"):
        cache.chunk(0, 3)


@pytest.mark.parametrize("shape", [(2, 2, 4, 3, 6), (1, 2, 4, 3, 5), (2, 2, 3, 3, 5)])
def test_a_chunk_of_another_shape_is_refused(shape):
    with pytest.raises(InvalidInputError, match="is not 4 tokens of a cache"):
        KVCache(SHAPE, torch.float32).append(torch.zeros(shape), range(4))


def test_growing_in_the_middle_of_a_forward_pass_changes_no_logit():
    model, tokens = tiny_llama(), random_tokens(90)
    roomy, tight = model.new_cache(200), model.new_cache(1)
    for cache in (roomy, tight):
        model.prefill(cache, tokens[:40])

    assert torch.equal(model.prefill(roomy, tokens[40:]), model.prefill(tight, tokens[40:]))
    assert torch.equal(roomy.chunk(0, 90), tight.chunk(0, 90))


def test_a_batch_is_refused():
    cache = KVCache(SHAPE, torch.float32)
    pair = torch.zeros(2, 3, 1, 5)
    with pytest.raises(InvalidInputError, match="not a batch of 2"):
        cache.past.update(pair, pair, 0)


def test_a_dropped_cache_frees_its_buffer_at_once():
    gc.disable()
    try:
        cache = KVCache(SHAPE, torch.float32)
        buffer = weakref.ref(cache._buffer)
        del cache
        assert buffer() is None
    finally:
        gc.enable()
