"""Small random models of several families: real transformers code, no trained weights needed."""

import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
)

from cachegen import LanguageModel

VOCABULARY = 97


def tiny_llama(layers: int = 3, seed: int = 0) -> LanguageModel:
    """Grouped-query attention with rotary embeddings: 4 query heads, 2 KV heads of 8."""
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        pad_token_id=0,
        eos_token_id=None,
    )
    return _wrap(LlamaForCausalLM, config, seed)


def tiny_gpt2() -> LanguageModel:
    """Multi-head attention, learned positions: 4 heads of 6, an odd head size."""
    config = GPT2Config(
        vocab_size=VOCABULARY,
        n_embd=24,
        n_layer=2,
        n_head=4,
        n_positions=512,
        pad_token_id=0,
        eos_token_id=None,
    )
    return _wrap(GPT2LMHeadModel, config, seed=1)


def tiny_sliding() -> LanguageModel:
    """A sliding window of 16 tokens, far shorter than the contexts of the tests."""
    config = MistralConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=1,
        sliding_window=16,
        max_position_embeddings=512,
        pad_token_id=0,
        eos_token_id=None,
    )
    return _wrap(MistralForCausalLM, config, seed=2)


def _wrap(kind: type, config: object, seed: int) -> LanguageModel:
    torch.manual_seed(seed)
    return LanguageModel(kind(config).eval(), tokenizer=None, name=kind.__name__)


def random_tokens(count: int, seed: int = 0) -> list[int]:
    """Token ids in the tiny models' vocabulary."""
    return torch.randint(1, VOCABULARY, (count,), generator=torch.Generator().manual_seed(seed)).tolist()
