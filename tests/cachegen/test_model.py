"""A model's cache, filled in any way, continues as the plain model does."""

import json

import pytest
import torch
from families import letters, model_of, network_of, save_tiny_model
from tiny_models import VOCABULARY, random_tokens, tiny_gpt2, tiny_llama, tiny_sliding
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    LogitsProcessor,
    ProphetNetConfig,
    ProphetNetForCausalLM,
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


def test_encoder_decoder_models_are_refused_by_name():
    encoder_decoder = T5ForConditionalGeneration(
        T5Config(vocab_size=VOCABULARY, d_model=16, d_kv=4, d_ff=16, num_layers=1, num_heads=2)
    )
    with pytest.raises(UnsupportedModelError, match=r"mine \(t5\): an encoder-decoder"):
        LanguageModel(encoder_decoder.eval(), None, "mine")


def test_a_folder_without_a_model_is_refused(tmp_path):
    with pytest.raises(InvalidInputError, match=str(tmp_path)):
        load_model(tmp_path)


def test_generation_needs_a_question():
    model = tiny_llama()
    with pytest.raises(InvalidInputError, match="at least one token"):
        model.generate(model.new_cache(4), [])


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"nonsense": 1}, "generate with nonsense: .*not used by the model"),
        ({"max_new_tokens": 0}, "generate with max_new_tokens: .*greater than 0"),
        ({"max_new_tokens": "many"}, "generate with max_new_tokens: "),
        (
            {"temperature": -1.0, "do_sample": True, "max_new_tokens": 2},
            "with temperature, .*strictly positive",
        ),
        ({"max_length": 10}, "generate with max_length: Input length"),
        ({"streamer": 3}, "generate with streamer: "),
        ({"max_new_tokens": 500}, "52 tokens of context and question may grow to 552, .*at most 460"),
        ({"max_length": 513}, "may grow to 513"),
        ({"num_beams": 2}, "num_beams is 2; a KV cache holds one sequence"),
        ({"num_return_sequences": 3, "do_sample": True}, "num_return_sequences is 3"),
        ({"assistant_model": tiny_llama().network}, "assistant_model asks for assisted generation"),
        ({"prompt_lookup_num_tokens": 2}, "would run the context again behind its cache"),
        ({"use_cache": False}, "use_cache follows from the cache"),
        ({"attention_mask": None}, "attention_mask follows from the cache"),
        ({"past_key_values": None}, "past_key_values follows from the cache"),
        ({"return_dict_in_generate": True}, "return_dict_in_generate follows from the cache"),
        ({"cache_implementation": "static"}, "cache_implementation follows from the cache"),
    ],
)
def test_options_that_cannot_be_followed_are_refused_and_the_cache_is_left_as_it_was(options, text):
    model, tokens = tiny_llama(), random_tokens(52)
    cache = model.new_cache(50)
    model.prefill(cache, tokens[:50])
    with pytest.raises(InvalidInputError, match=text):
        model.generate(cache, tokens[50:], **options)
    assert cache.num_tokens == cache.past.get_seq_length() == 50


def test_a_models_own_defaults_of_generation_hold_where_no_option_says_otherwise():
    model, tokens = tiny_llama(), random_tokens(52)
    cache = model.new_cache(50)
    model.prefill(cache, tokens[:50])
    settings = model.network.generation_config
    settings.return_dict_in_generate = True
    settings.max_new_tokens = 3
    assert len(model.generate(cache, tokens[50:])) == 3
    settings.max_new_tokens = 470
    with pytest.raises(InvalidInputError, match="may grow to 522"):
        model.generate(cache, tokens[50:])


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


def test_scaling_that_changes_with_the_length_ends_what_one_cache_may_hold():
    """LongRoPE turns all keys otherwise once a sequence is longer: those in the cache would be wrong."""
    model = model_of("phi3")
    assert model.network.config.max_position_embeddings == 256
    assert model.max_tokens == 192


def test_a_model_that_cannot_go_on_behind_a_cache_is_refused_by_name():
    config = ProphetNetConfig(
        vocab_size=VOCABULARY,
        hidden_size=16,
        decoder_ffn_dim=16,
        num_encoder_layers=1,
        num_decoder_layers=1,
        num_decoder_attention_heads=2,
        is_encoder_decoder=False,
    )
    with pytest.raises(UnsupportedModelError, match=r"mine \(prophetnet\): does not run behind a KV cache"):
        LanguageModel(ProphetNetForCausalLM(config).eval(), None, "mine")


def test_a_forward_pass_that_skips_a_layers_cache_is_refused_by_layer(monkeypatch):
    model, tokens = tiny_llama(), random_tokens(20)
    cache = model.new_cache(20)
    model.prefill(cache, tokens[:10])
    layer = cache.past.layers[1]

    def keep_nothing(keys, values, *_, **__):
        return torch.cat([layer.keys, keys], dim=2), torch.cat([layer.values, values], dim=2)

    with monkeypatch.context() as patch:
        patch.setattr(layer, "update", keep_nothing)
        with pytest.raises(UnsupportedModelError, match="layer 1 wrote 0 entries into the KV cache for 10 tokens"):
            model.prefill(cache, tokens[10:])

    torch.testing.assert_close(model.prefill(cache, tokens[10:]), plain_logits(model, tokens)[-1])


def test_fingerprint_does_not_depend_on_the_order_in_which_a_configuration_lists_its_settings():
    model = tiny_llama()
    settings = model.network.config.rope_parameters
    model.network.config.rope_parameters = dict(reversed(settings.items()))
    assert list(settings) != list(model.network.config.rope_parameters)
    assert LanguageModel(model.network, None, "again").fingerprint == model.fingerprint


def test_a_damaged_model_file_is_refused(tmp_path):
    model = tiny_llama()
    model.network.save_pretrained(tmp_path)
    letters().save_pretrained(tmp_path)
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:500])
    with pytest.raises(InvalidInputError, match=str(tmp_path)):
        load_model(tmp_path)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"hidden_size": 33}, "no causal language model at"),
        ({"num_attention_heads": "4"}, "no causal language model at"),
        ({"max_position_embeddings": "many"}, "no causal language model at"),
        ({"dtype": "float17"}, "no causal language model at"),
        ({"num_hidden_layers": 5}, "lacks 18 of its model's weights, such as model.layers.3."),
    ],
)
def test_a_configuration_that_does_not_go_with_the_weights_is_refused(changes, said, tmp_path):
    """Of missing weights transformers says a word and draws them at random, so that each load is another model."""
    save_tiny_model(tmp_path, tiny_llama())
    config = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    (tmp_path / "config.json").write_text(json.dumps(config | changes), encoding="utf-8")

    with pytest.raises(InvalidInputError) as refusal:
        load_model(tmp_path)
    assert str(tmp_path) in str(refusal.value)
    assert said in str(refusal.value)


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_a_model_without_its_tokenizer_is_refused_by_what_is_missing(family, tmp_path):
    """Of gpt2, transformers makes an empty one; of llama, it says itself that there is none."""
    network_of(family).save_pretrained(tmp_path)
    with pytest.raises(InvalidInputError, match=f"no tokenizer with the model at '{tmp_path}'"):
        load_model(tmp_path)
    letters().save_pretrained(tmp_path)
    assert load_model(tmp_path).tokenize("ab") == [66, 67]


def test_fingerprint_survives_saving_and_loading(tmp_path):
    model = tiny_llama()
    model._model.save_pretrained(tmp_path)
    loaded = LanguageModel(type(model._model).from_pretrained(tmp_path).eval(), None, "again")
    assert loaded.fingerprint == model.fingerprint
