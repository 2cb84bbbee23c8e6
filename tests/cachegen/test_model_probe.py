"""How keys turn is found for each family of models, or the model is refused by name."""

import numpy as np
import pytest
import torch
from families import model_of
from tiny_models import VOCABULARY, tiny_gpt2, tiny_llama, tiny_sliding
from transformers import (
    CohereConfig,
    CohereForCausalLM,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    OPTConfig,
    OPTForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    RoFormerConfig,
    RoFormerForCausalLM,
)

from cachegen import LanguageModel, UnsupportedModelError
from cachegen.model_probe import find_rotary

SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
    "eos_token_id": None,
}
SCALINGS = {
    "default": {"rope_type": "default", "rope_theta": 500.0},
    "linear": {"rope_type": "linear", "factor": 4.0, "rope_theta": 10_000.0},
    "dynamic": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10_000.0},
    "llama3": {
        "rope_type": "llama3",
        "rope_theta": 10_000.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    },
    "yarn": {
        "rope_type": "yarn",
        "rope_theta": 10_000.0,
        "factor": 4.0,
        "original_max_position_embeddings": 64,
    },
    "longrope": {
        "rope_type": "longrope",
        "rope_theta": 10_000.0,
        "factor": 2.0,
        "short_factor": [1.0, 1.5, 2.0, 2.5],
        "long_factor": [3.0, 3.5, 4.0, 4.5],
        "original_max_position_embeddings": 128,
    },
}


def build(kind, config, seed=0):
    torch.manual_seed(seed)
    return LanguageModel(kind(config).eval(), None, kind.__name__)


def scaled_llama(name):
    return build(LlamaForCausalLM, LlamaConfig(**SIZES, rope_parameters=SCALINGS[name]))


def neox():
    config = GPTNeoXConfig(**{**SIZES, "num_key_value_heads": None}, rotary_pct=0.5)
    return build(GPTNeoXForCausalLM, config)


def gemma():
    """Layers of two kinds: local ones with a theta of their own, and global ones."""
    config = Gemma3TextConfig(
        **{**SIZES, "num_hidden_layers": 4},
        head_dim=8,
        sliding_window=16,
        layer_types=["sliding_attention", "full_attention"] * 2,
        rope_parameters={
            "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
            "full_attention": {"rope_type": "default", "rope_theta": 10_000.0},
        },
    )
    return build(Gemma3ForCausalLM, config)


FAMILIES = {
    **{name: (lambda name=name: scaled_llama(name)) for name in SCALINGS},
    "half-width llama": tiny_llama,
    "sliding mistral": tiny_sliding,
    "biased qwen2": lambda: build(Qwen2ForCausalLM, Qwen2Config(**SIZES)),
    "partial neox": neox,
    "interleaved cohere": lambda: build(CohereForCausalLM, CohereConfig(**SIZES)),
    "mixed gemma3": gemma,
}


def keys_of_a_repeated_token(model, tokens=48):
    """First-layer keys of one token at every position: they differ by their rotation alone."""
    cache = model.new_cache(tokens)
    model.prefill(cache, [7] * tokens)
    return cache.chunk(0, tokens)[:1, 0].float()


@pytest.mark.parametrize("family", FAMILIES)
def test_keys_of_one_token_are_one_key_when_turned_back(family):
    model = FAMILIES[family]()
    rotary = find_rotary(model)
    keys = keys_of_a_repeated_token(model)
    kind = [int(rotary.of_layer[0])]
    first = type(rotary)(np.zeros(1, np.uint8), rotary.frequencies[kind], rotary.partners[kind])

    assert first.frequencies.any()
    back = first.apply(keys, -np.arange(keys.shape[1]))
    assert not torch.allclose(keys, keys[:, :1].expand_as(keys), rtol=0.1, atol=0.1)
    torch.testing.assert_close(back, back[:, :1].expand_as(back), rtol=1e-3, atol=1e-3)


def test_partial_rotation_leaves_the_rest_of_a_head_still():
    assert (find_rotary(neox()).frequencies != 0).sum() == 4


def test_local_and_global_layers_turn_each_in_their_own_way():
    rotary = find_rotary(gemma())

    assert rotary.kinds == 2
    assert rotary.of_layer[0] == rotary.of_layer[2] != rotary.of_layer[1]


@pytest.mark.parametrize("name", SCALINGS)
def test_only_scalings_that_follow_the_length_have_a_limit(name):
    limits = {"dynamic": 256, "longrope": 128}

    assert find_rotary(scaled_llama(name)).max_tokens == limits.get(name, 0)


@pytest.mark.parametrize(
    "make",
    [
        tiny_gpt2,
        lambda: build(
            OPTForCausalLM,
            OPTConfig(
                vocab_size=VOCABULARY,
                hidden_size=32,
                ffn_dim=48,
                num_hidden_layers=2,
                num_attention_heads=4,
                max_position_embeddings=128,
                word_embed_proj_dim=32,
            ),
        ),
    ],
)
def test_learned_positions_leave_keys_as_they_are(make):
    assert not find_rotary(make()).frequencies.any()


def test_keys_that_turn_in_an_unknown_way_are_refused_by_name():
    """Weighted behind their rotation, so that no rotation alone brings them back."""
    with pytest.raises(UnsupportedModelError, match=r"hunyuan.* \(hunyuan_v1_dense\): keys of layer 0 turn"):
        find_rotary(model_of("hunyuan_v1_dense"))


def test_keys_that_turn_where_no_position_can_be_asked_for_are_refused_by_name():
    config = RoFormerConfig(
        vocab_size=VOCABULARY,
        embedding_size=32,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=128,
        is_decoder=True,
    )
    with pytest.raises(
        UnsupportedModelError, match=r"\(roformer\): keys turn with their position, and the model takes no"
    ):
        find_rotary(build(RoFormerForCausalLM, config))
