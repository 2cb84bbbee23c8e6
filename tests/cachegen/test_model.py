"""A model's cache, filled in any way, continues as the plain model does."""

import pytest
import torch
from tiny_models import VOCABULARY, random_tokens, tiny_gpt2, tiny_llama, tiny_sliding
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    LogitsProcessor,
    MambaConfig,
    MambaForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
)

from cachegen import InvalidInputError, LanguageModel, MismatchError, UnsupportedModelError, load_model

FAMILIES = [tiny_llama, tiny_gpt2, tiny_sliding]


def plain_logits(model, tokens):
    with torch.inference_mode():
        return model._model(torch.tensor([tokens])).logits[0].float()


@pytest.mark.parametrize("make", FAMILIES)
def test_chunked_prefill_gives_the_logits_of_the_plain_model(make):
    model, tokens = make(), random_tokens(60)
    cache = model.new_cache(8)
    for first in range(0, 60, 13):
        logits = model.prefill(cache, tokens[first : first + 13])

    torch.testing.assert_close(logits, plain_logits(model, tokens)[-1])


@pytest.mark.parametrize("make", FAMILIES)
def test_a_cache_rebuilt_from_its_chunks_generates_what_plain_generate_does(make):
    model, context, question = make(), random_tokens(50), random_tokens(5, seed=9)
    source = model.new_cache(50)
    model.prefill(source, context)
    cache = model.new_cache(1)
    for first in range(0, 50, 20):
        end = min(first + 20, 50)
        cache.append(source.chunk(first, end), context[first:end])

    options = {"max_new_tokens": 12, "do_sample": False}
    ids = torch.tensor([context + question])
    plain = model._model.generate(ids, attention_mask=torch.ones_like(ids), **options)
    assert model.generate(cache, question, **options) == plain[0, ids.shape[1] :].tolist()
    assert cache.token_ids == context


def test_continuation_logits_leave_the_cache_as_it_was():
    model, tokens = tiny_llama(), random_tokens(40)
    cache = model.new_cache(40)
    model.prefill(cache, tokens[:30])
    logits = model.continuation_logits(cache, tokens[30:])

    assert cache.num_tokens == cache.past.get_seq_length() == 30
    torch.testing.assert_close(logits, plain_logits(model, tokens)[30:])


def test_shape_is_read_off_the_model():
    shape = tiny_gpt2().shape
    assert (shape.num_layers, shape.num_kv_heads, shape.head_dim) == (2, 4, 6)


def test_fingerprint_tells_models_apart_and_is_the_same_every_time():
    assert tiny_llama().fingerprint == tiny_llama().fingerprint
    different = {
        tiny_llama().fingerprint,
        tiny_llama(seed=5).fingerprint,
        tiny_llama(layers=2).fingerprint,
        tiny_gpt2().fingerprint,
        LanguageModel(tiny_llama()._model.to(torch.bfloat16), None, "bf16").fingerprint,
    }
    assert len(different) == 5


def test_fingerprint_notices_one_edited_weight():
    config = LlamaConfig(
        vocab_size=9700,
        hidden_size=32,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=4,
        max_position_embeddings=64,
    )
    llama = LlamaForCausalLM(config).eval()
    before = LanguageModel(llama, None, "llama").fingerprint
    with torch.no_grad():
        llama.model.embed_tokens.weight[1234, 5] += 1

    assert LanguageModel(llama, None, "llama").fingerprint != before


def test_models_without_one_kv_cache_are_refused_by_name():
    encoder_decoder = T5ForConditionalGeneration(
        T5Config(vocab_size=VOCABULARY, d_model=16, d_kv=4, d_ff=16, num_layers=1, num_heads=2)
    )
    state_space = MambaForCausalLM(
        MambaConfig(vocab_size=VOCABULARY, hidden_size=16, state_size=4, num_hidden_layers=1)
    )
    with pytest.raises(UnsupportedModelError, match="t5: an encoder-decoder"):
        LanguageModel(encoder_decoder.eval(), None, "t5")
    with pytest.raises(UnsupportedModelError, match="mamba: needs one K and one V tensor"):
        LanguageModel(state_space.eval(), None, "mamba")


def test_a_folder_without_a_model_is_refused(tmp_path):
    with pytest.raises(InvalidInputError, match=str(tmp_path)):
        load_model(tmp_path)


def test_generation_needs_a_question():
    model = tiny_llama()
    with pytest.raises(InvalidInputError, match="at least one token"):
        model.generate(model.new_cache(4), [])


class Interrupting(LogitsProcessor):
    """What a user's Ctrl-C does to generation, at the third token."""

    def __init__(self):
        self.calls = 0

    def __call__(self, input_ids, scores):
        self.calls += 1
        if self.calls == 3:
            raise KeyboardInterrupt
        return scores


def test_interrupted_generation_leaves_the_cache_as_it_was():
    model, tokens = tiny_llama(), random_tokens(40)
    cache = model.new_cache(30)
    model.prefill(cache, tokens[:30])
    with pytest.raises(KeyboardInterrupt):
        model.generate(cache, tokens[30:], max_new_tokens=8, logits_processor=[Interrupting()])

    assert cache.num_tokens == cache.past.get_seq_length() == 30
    torch.testing.assert_close(model.continuation_logits(cache, tokens[30:]), plain_logits(model, tokens)[30:])


def test_prefill_that_fails_between_layers_leaves_the_cache_as_it_was(monkeypatch):
    model, tokens = tiny_llama(), random_tokens(40)
    cache = model.new_cache(30)
    model.prefill(cache, tokens[:30])

    def run_out_of_memory(_hidden):
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(model._model.model.layers[1].mlp, "forward", run_out_of_memory)
        with pytest.raises(MemoryError):
            model.prefill(cache, tokens[30:])

    torch.testing.assert_close(model.prefill(cache, tokens[30:]), plain_logits(model, tokens)[-1])


@pytest.mark.parametrize("token", [-1, VOCABULARY])
def test_tokens_outside_the_vocabulary_are_refused_by_place(token):
    model = tiny_llama()
    with pytest.raises(InvalidInputError, match=f"token 2 has id {token}, the vocabulary is 0 to 96"):
        model.prefill(model.new_cache(4), [5, 6, token])


def test_another_models_cache_is_refused_by_name():
    model, other = tiny_llama(), tiny_llama(seed=4)
    cache = other.new_cache(8)
    other.prefill(cache, random_tokens(8))
    for call in (model.prefill, model.continuation_logits, model.generate):
        with pytest.raises(MismatchError, match=other.fingerprint.hex()):
            call(cache, random_tokens(2))


def test_a_sequence_longer_than_the_model_was_made_for_is_refused():
    model = tiny_gpt2()
    cache = model.new_cache(8)
    model.prefill(cache, random_tokens(500))
    with pytest.raises(InvalidInputError, match="520 tokens are more than GPT2LMHeadModel was made for, 512"):
        model.prefill(cache, random_tokens(20))
    assert cache.num_tokens == 500


def test_fingerprint_survives_saving_and_loading(tmp_path):
    model = tiny_llama()
    model._model.save_pretrained(tmp_path)
    loaded = LanguageModel(type(model._model).from_pretrained(tmp_path).eval(), None, "again")
    assert loaded.fingerprint == model.fingerprint
