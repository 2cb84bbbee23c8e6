"""The cache that chunks are written into is the one that transformers reads."""

import gc
import itertools
import threading
import weakref

import pytest
import torch
from tiny_models import random_tokens, tiny_llama, tiny_sliding
from torch.overrides import TorchFunctionMode

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


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
@pytest.mark.parametrize("capacity_tokens", [1, 100])
def test_chunks_written_in_any_order_are_the_ones_appended_in_order(order, capacity_tokens):
    spans, chunk = [(0, 30), (30, 70), (70, 71)], random_chunk(71)
    cache = KVCache(SHAPE, torch.float32, capacity_tokens=capacity_tokens)
    for index in order:
        first, end = spans[index]
        cache.write(first, chunk[:, :, first:end])
        assert cache.num_tokens == cache.past.get_seq_length() == 0
    for first, end in spans:
        cache.commit(range(first, end))

    assert cache.token_ids == list(range(71))
    assert torch.equal(cache.chunk(0, 71), chunk)


def test_a_chunk_written_again_over_held_tokens_is_the_one_that_transformers_sees():
    old, new = random_chunk(4), random_chunk(4, seed=1)
    cache = KVCache(SHAPE, torch.float32, capacity_tokens=4)
    cache.append(old, range(4))
    cache.write(60, old)
    cache.write(0, new)

    assert torch.equal(cache.past.layers[1].values[0], new[1, 1].transpose(0, 1))


@pytest.mark.parametrize("shape", [(2, 2, 4, 3, 6), (1, 2, 4, 3, 5), (2, 2, 4, 3), (2, 2, 4, 3, 5, 1)])
def test_a_chunk_of_another_shape_is_not_written(shape):
    with pytest.raises(InvalidInputError, match="tokens of a cache of"):
        KVCache(SHAPE, torch.float32).write(0, torch.zeros(shape))


def test_a_negative_place_is_refused():
    with pytest.raises(InvalidInputError, match="cannot be written at token -1"):
        KVCache(SHAPE, torch.float32).write(-1, random_chunk(4))


def test_tokens_that_there_is_no_room_for_are_not_committed():
    cache = KVCache(SHAPE, torch.float32, capacity_tokens=4)
    cache.write(0, random_chunk(4))
    with pytest.raises(InvalidInputError, match=r"tokens \[0, 5\) are not in a buffer of 4 tokens"):
        cache.commit(range(5))
    assert cache.num_tokens == 0


@pytest.mark.parametrize("capacity_tokens", [240, 1])
@pytest.mark.parametrize("make", [tiny_llama, tiny_sliding])
def test_prefill_at_the_front_and_chunks_written_behind_do_not_disturb_each_other(make, capacity_tokens):
    model, tokens = make(), random_tokens(240)
    clean = model.new_cache(240)
    model.prefill(clean, tokens[:120])
    model.prefill(clean, tokens[120:])
    cache, started = model.new_cache(capacity_tokens), threading.Barrier(2)
    spans = [(first, first + 4) for first in range(236, 118, -4)]

    def stream():
        started.wait()
        for first, end in spans:
            cache.write(first, clean.chunk(first, end))

    thread = threading.Thread(target=stream)
    thread.start()
    started.wait()
    for first in range(0, 120, 4):
        model.prefill(cache, tokens[first : first + 4])
    thread.join()
    cache.commit(tokens[120:])

    assert cache.token_ids == tokens
    assert torch.equal(cache.chunk(120, 240), clean.chunk(120, 240))
    torch.testing.assert_close(cache.chunk(0, 120), clean.chunk(0, 120))
    question = random_tokens(3, seed=4)
    torch.testing.assert_close(model.continuation_logits(cache, question), model.continuation_logits(clean, question))


class AfterCopying(TorchFunctionMode):
    """Does something once, just behind the next assignment into a tensor of this thread."""

    def __init__(self, act):
        super().__init__()
        self.act = act

    def __torch_function__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        if function is torch.Tensor.__setitem__ and self.act:
            act, self.act = self.act, None
            act()
        return result


def test_what_another_thread_writes_while_the_buffer_grows_is_not_lost():
    chunk = random_chunk(4)
    cache = KVCache(SHAPE, torch.float32, capacity_tokens=4)
    writer = threading.Thread(target=cache.write, args=(0, chunk))

    def write_meanwhile():
        writer.start()
        writer.join(timeout=0.2)  # it waits for the growth to end; where it does not, it is done by then

    with AfterCopying(write_meanwhile):
        cache.write(4, chunk)
    writer.join()
    cache.commit(range(8))

    assert torch.equal(cache.chunk(0, 4), chunk)


def test_a_cache_that_grew_within_a_forward_pass_takes_chunks_after_it():
    model, tokens = tiny_llama(), random_tokens(24)
    cache = model.new_cache(16)
    model.prefill(cache, tokens[:20])
    cache.append(cache.chunk(0, 4), tokens[20:])
    assert torch.equal(cache.chunk(20, 24), cache.chunk(0, 4))
