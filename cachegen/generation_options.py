"""Which options of transformers' ``generate`` make sense behind a cache that is at hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cachegen.errors import InvalidInputError

# Said by the cache and the question, or fixed by what is returned.
_TAKEN = (
    "inputs",
    "input_ids",
    "inputs_embeds",
    "attention_mask",
    "position_ids",
    "past_key_values",
    "use_cache",
    "cache_implementation",
    "return_dict_in_generate",
)
# Each makes a batch of several sequences.
_ONE_SEQUENCE = ("num_beams", "num_return_sequences")
# What transformers takes where neither the call nor the model says how many.
_DEFAULT_NEW_TOKENS = 20


def check_options(options: Mapping[str, Any], prompt_tokens: int, max_tokens: int | None, model_config: Any) -> None:
    """Refuse options that cannot be followed.

    Parameters
    ----------
    options : mapping
        As the caller gave them.
    prompt_tokens : int
        Of context and question.
    max_tokens : int or None
        What the model was made for.
    model_config : transformers.GenerationConfig
        The model's own defaults.

    Raises
    ------
    InvalidInputError
        An option that is not the caller's, that needs several sequences, or that leads beyond ``max_tokens``.
    """
    for name in _TAKEN:
        if name in options:
            raise InvalidInputError(f"generate: {name} follows from the cache and the question and cannot be given")
    for name in _ONE_SEQUENCE:
        if options.get(name) not in (None, 1):
            raise InvalidInputError(f"generate: {name} is {options[name]!r}; a KV cache holds one sequence, so it is 1")
    last = _last_token(options, prompt_tokens, model_config)
    if max_tokens is not None and last > max_tokens:
        raise InvalidInputError(
            f"generate: {prompt_tokens} tokens of context and question may grow to {last}, and the model takes "
            f"{max_tokens}; max_new_tokens can be at most {max_tokens - prompt_tokens}"
        )


def _last_token(options: Mapping[str, Any], prompt_tokens: int, model_config: Any) -> int:
    """Tokens there may be at the end; transformers itself refuses limits that are not numbers."""
    for stated in (options.get, lambda name: getattr(model_config, name, None)):
        new, total = stated("max_new_tokens"), stated("max_length")
        if isinstance(new, int):
            return prompt_tokens + new
        if isinstance(total, int):
            return total
    return prompt_tokens + _DEFAULT_NEW_TOKENS
