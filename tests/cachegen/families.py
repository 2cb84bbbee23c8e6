"""Small random models of every family that is tried: their configurations, and what is said of those refused."""

from functools import cache
from pathlib import Path

import torch
from tiny_models import VOCABULARY, random_tokens
from tokenizers import Tokenizer
from tokenizers.models import BPE
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

from cachegen import LanguageModel

WINDOW = 16
MAX_TOKENS = 256
LAYERS = 2
_PLAIN = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "max_position_embeddings": MAX_TOKENS,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": None,
}
_GROUPED = {**_PLAIN, "num_key_value_heads": 2}
_HEADS = {**_GROUPED, "head_dim": 8}
_SLIDING = {**_HEADS, "sliding_window": WINDOW}
_MIXED = {**_SLIDING, "num_hidden_layers": 4, "layer_types": ["sliding_attention", "full_attention"] * 2}
_EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 16}
_GPT = {
    "vocab_size": VOCABULARY,
    "n_embd": 32,
    "n_layer": LAYERS,
    "n_head": 4,
    "n_positions": MAX_TOKENS,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": None,
}
_LATENT = {
    **_PLAIN,
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 8,
    "num_key_value_heads": 4,
}
_LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 10_000.0,
    "short_factor": [1.0, 1.5, 2.0, 2.5],
    "long_factor": [3.0, 3.5, 4.0, 4.5],
}
_PICTURES = {
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": 8,
    "patch_size": 4,
}
_STATE = {"mamba_n_heads": 8, "mamba_d_head": 8, "mamba_d_state": 8}

# What a family's layers look like decides: all that follow give back their own logits from a cache that was coded.
SUPPORTED = {
    "apertus": _HEADS,
    "arcee": _HEADS,
    "afmoe": {**_MIXED, "num_experts": 4, **_EXPERTS},
    "biogpt": _PLAIN,
    "bitnet": _GROUPED,
    "bloom": {"vocab_size": VOCABULARY, "hidden_size": 32, "n_layer": LAYERS, "n_head": 4},
    "codegen": {**_GPT, "n_ctx": MAX_TOKENS, "rotary_dim": 4},
    "cohere": _GROUPED,
    "cohere2": _MIXED,
    "dots1": {**_HEADS, "n_routed_experts": 4, "n_shared_experts": 1, "first_k_dense_replace": 1, **_EXPERTS},
    "ernie4_5": _HEADS,
    "ernie4_5_moe": {**_GROUPED, "moe_num_experts": 4, "moe_k": 2, "moe_intermediate_size": 16},
    "exaone4": _MIXED,
    "falcon": {**_PLAIN, "multi_query": True},
    "falcon (alibi)": {**_PLAIN, "alibi": True, "multi_query": False},
    "falcon (new)": {**_PLAIN, "new_decoder_architecture": True, "num_kv_heads": 2},
    "gemma": _HEADS,
    "gemma2": _MIXED,
    "gemma3": {"text_config": _MIXED, "vision_config": _PICTURES, "mm_tokens_per_image": 4},
    "gemma3_text": {
        **_MIXED,
        "rope_parameters": {
            "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 10_000.0},
        },
    },
    "gemma3n_text": {
        **_MIXED,
        "num_hidden_layers": 6,
        "layer_types": ["sliding_attention", "full_attention"] * 3,
        "num_kv_shared_layers": 2,
        "vocab_size_per_layer_input": VOCABULARY,
        "hidden_size_per_layer_input": 8,
    },
    "glm": _HEADS,
    "glm4": _HEADS,
    "glm4_moe": {
        **_HEADS,
        "n_routed_experts": 4,
        "n_group": 1,
        "topk_group": 1,
        "first_k_dense_replace": 1,
        **_EXPERTS,
    },
    "gpt2": _GPT,
    "gpt_bigcode": _GPT,
    "gpt_neo": {
        **_PLAIN,
        "num_layers": LAYERS,
        "num_heads": 4,
        "attention_types": [[["global", "local"], 1]],
        "window_size": WINDOW,
    },
    "gpt_neox": {**_PLAIN, "rotary_pct": 0.5},
    "gpt_oss": {**_MIXED, "num_local_experts": 4, "num_experts_per_tok": 2},
    "gptj": {**_GPT, "rotary_dim": 4},
    "granite": _GROUPED,
    "granitemoe": {**_GROUPED, "num_local_experts": 4, "num_experts_per_tok": 2},
    "helium": _HEADS,
    "hunyuan_v1_dense": _HEADS,
    "jetmoe": {**_PLAIN, "num_key_value_heads": 2, "kv_channels": 8, "num_local_experts": 4},
    "llama": _GROUPED,
    "llama (llama3)": {
        **_GROUPED,
        "rope_parameters": {
            "rope_type": "llama3",
            "rope_theta": 10_000.0,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        },
    },
    "llama (yarn)": {
        **_GROUPED,
        "rope_parameters": {
            "rope_type": "yarn",
            "rope_theta": 10_000.0,
            "factor": 4.0,
            "original_max_position_embeddings": 64,
        },
    },
    "llama (dynamic)": {
        **_GROUPED,
        "rope_parameters": {"rope_type": "dynamic", "rope_theta": 10_000.0, "factor": 2.0},
    },
    "llama4_text": {
        **_HEADS,
        "num_hidden_layers": 4,
        "intermediate_size_mlp": 48,
        "num_local_experts": 2,
        "attention_chunk_size": 32,
    },
    "minimax_m2": {**_HEADS, "num_local_experts": 4, "num_experts_per_tok": 2, "rotary_dim": 4},
    "ministral": _SLIDING,
    "mistral": {**_HEADS, "sliding_window": None},
    "mistral (sliding)": _SLIDING,
    "mixtral": {**_HEADS, "num_local_experts": 4},
    "modernbert-decoder": {**_PLAIN, "num_hidden_layers": 3, "local_attention": WINDOW},
    "mpt": {"vocab_size": VOCABULARY, "d_model": 32, "n_layers": LAYERS, "n_heads": 4, "max_seq_len": MAX_TOKENS},
    "nanochat": _GROUPED,
    "nemotron": _GROUPED,
    "olmo": _GROUPED,
    "olmo2": _GROUPED,
    "olmo3": {**_GROUPED, "num_hidden_layers": 4, "sliding_window": WINDOW},
    "olmoe": {**_GROUPED, "num_experts": 4, "num_experts_per_tok": 2},
    "opt": {**_PLAIN, "ffn_dim": 48, "word_embed_proj_dim": 32},
    "persimmon": _PLAIN,
    "phi": _PLAIN,
    "phi3": {**_GROUPED, "rope_parameters": _LONGROPE, "original_max_position_embeddings": 192},
    "phimoe": {**_GROUPED, "num_local_experts": 4, "num_experts_per_tok": 2},
    "qwen2": _GROUPED,
    "qwen2 (sliding)": {
        **_GROUPED,
        "num_hidden_layers": 4,
        "use_sliding_window": True,
        "sliding_window": WINDOW,
        "max_window_layers": 2,
    },
    "qwen2_moe": {**_GROUPED, "num_experts": 4, "shared_expert_intermediate_size": 16, **_EXPERTS},
    "qwen3": _HEADS,
    "qwen3_moe": {**_HEADS, "num_experts": 4, **_EXPERTS},
    "seed_oss": _HEADS,
    "smollm3": {**_GROUPED, "num_hidden_layers": 4},
    "stablelm": _GROUPED,
    "starcoder2": {**_GROUPED, "sliding_window": WINDOW},
    "vaultgemma": _MIXED,
    "xglm": {
        "vocab_size": VOCABULARY,
        "d_model": 32,
        "ffn_dim": 48,
        "num_layers": LAYERS,
        "attention_heads": 4,
        "max_position_embeddings": MAX_TOKENS,
        "pad_token_id": 0,
        "eos_token_id": None,
    },
}

# Families that are refused, and the property that the text must name.
REFUSED = {
    "bamba": ({**_GROUPED, **_STATE, "attn_layer_indices": [1]}, "layer 0 keeps a LinearAttentionLayer"),
    "deepseek_v2": (
        {**_LATENT, "first_k_dense_replace": LAYERS},
        "1 heads of 16 float32 as keys and 1 heads of 8 float32 as values",
    ),
    "deepseek_v3": (_LATENT, "multi-head latent attention"),
    "falcon_h1": ({**_HEADS, **_STATE, "mamba_d_ssm": 64}, "layer 0 keeps a LinearAttentionAndFullAttentionLayer"),
    "gemma4_text": (
        {**_MIXED, "global_head_dim": 16, "hidden_size_per_layer_input": 0},
        "layer 1 keeps 2 heads of 16 float32 and layer 0 2 heads of 8 float32",
    ),
    "granitemoehybrid": ({**_GROUPED, **_STATE, "layer_types": ["mamba", "attention"]}, "LinearAttentionLayer"),
    "jamba": ({**_GROUPED, "attn_layer_period": 2, "attn_layer_offset": 1}, "LinearAttentionLayer"),
    "lfm2": ({**_GROUPED, "layer_types": ["conv", "full_attention"]}, "layer 0 keeps a LinearAttentionLayer"),
    "mamba": ({"vocab_size": VOCABULARY, "hidden_size": 16, "state_size": 4, "num_hidden_layers": 1}, "LinearAtt"),
    "minimax": ({**_HEADS, "layer_types": ["linear_attention", "full_attention"]}, "layer 0 keeps no keys and values"),
    "openai-gpt": (_GPT, "returns no KV cache"),
    "recurrent_gemma": ({**_GROUPED, "num_hidden_layers": 3, "lru_width": 32}, "returns no KV cache"),
}


@cache
def network_of(family):
    """The family's transformers model, with weights that matter: attention that is not flat, norms that are not 1."""
    settings = SUPPORTED[family] if family in SUPPORTED else REFUSED[family][0]
    torch.manual_seed(0)
    config = AutoConfig.for_model(family.split()[0], **settings)
    network = AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for parameter in network.parameters():
            noise = torch.randn_like(parameter)
            if parameter.ndim < 2:
                parameter += 0.2 * noise
            else:
                parameter.copy_(noise / parameter.shape[-1] ** 0.5)
    return network


@cache
def model_of(family):
    """The same, as this project sees it, with a tokenizer of one token a letter."""
    return LanguageModel(network_of(family), letters(), family)


def letters():
    """A tokenizer of one token a printable letter."""
    vocabulary = {chr(31 + index): index for index in range(1, VOCABULARY)} | {"?!": 0}
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer(BPE(vocabulary, [], unk_token="?!")), unk_token="?!")


@cache
def context_of(length):
    """Token ids of a context."""
    return random_tokens(length, seed=3)


def save_tiny_model(folder: Path, model: LanguageModel) -> Path:
    """Write a model with a tokenizer of a token a character, as a user would have it on disk."""
    model.network.save_pretrained(folder)
    letters().save_pretrained(folder)
    return folder
