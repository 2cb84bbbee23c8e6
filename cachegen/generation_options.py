"""Which options of transformers' ``generate`` make sense behind a cache that is at hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from cachegen.errors import InvalidInputError

# Said by the cache and the question, or fixed by what is returned.
_TAKEN = (
    "inputs",
    "input_ids",
    "inputs_embeds",
    "attention_mask",
    "position_ids",
    "cache",
    "past_key_values",
    "use_cache",
    "cache_implementation",
    "return_dict_in_generate",
)
# Each makes a batch of several sequences.
_ONE_SEQUENCE = ("num_beams", "num_return_sequences")
# Each makes assisted generation, whose first step in transformers 5.24 runs all prompt tokens again behind a cache that
# holds them already: the tokens would be wrong.
_ASSISTED = ("assistant_model", "prompt_lookup_num_tokens", "assistant_early_exit", "use_mtp")
# Each would count a shorter row's padding, or end rows in a way that does not show in what comes back.
_NOT_IN_BATCHES = ("max_length", "min_length", "no_repeat_ngram_size", "stop_strings", "stopping_criteria")
# What transformers takes where neither the call nor the model says how many.
_DEFAULT_NEW_TOKENS = 20


class Settings:
    """Options of one call of ``generate``, and what holds where the call does not say.

    Parameters
    ----------
    options : mapping
        As the caller gave them; a ``generation_config`` among them comes before the model's.
    model_config : transformers.GenerationConfig
        The model's own defaults.
    """

    def __init__(self, options: Mapping[str, Any], model_config: Any) -> None:
        given = options.get("generation_config")
        self._options = options
        configs = (partial(_field, config) for config in (given, model_config))
        self._sources: tuple[Callable[[str], Any], ...] = (options.get, *configs)

    def get(self, name: str) -> Any:
        """Value that generation follows; None where nothing says."""
        return next((value for source in self._sources if (value := source(name)) is not None), None)

    def check(self, prompt_tokens: int, max_tokens: int | None) -> None:
        """Refuse options that cannot be followed.

        Parameters
        ----------
        prompt_tokens : int
            Of context and question.
        max_tokens : int or None
            What the model was made for.

        Raises
        ------
        InvalidInputError
            An option that is not the caller's, that needs several sequences or assisted generation, or that leads
            beyond ``max_tokens``.
        """
        for name in _TAKEN:
            if name in self._options:
                raise InvalidInputError(f"generate: {name} follows from the cache and the question and cannot be given")
        for name in _ONE_SEQUENCE:
            value = self.get(name)
            if value not in (None, 1):
                raise InvalidInputError(f"generate: {name} is {value!r}; a KV cache holds one sequence, so it is 1")
        for name in _ASSISTED:
            if self.get(name):
                raise InvalidInputError(
                    f"generate: {name} asks for assisted generation, which would run the context again behind its cache"
                )
        last = self._last_token(prompt_tokens)
        if max_tokens is not None and last > max_tokens:
            raise InvalidInputError(
                f"generate: {prompt_tokens} tokens of context and question may grow to {last}, and the model takes "
                f"{max_tokens}; max_new_tokens can be at most {max_tokens - prompt_tokens}"
            )

    def check_batch(self) -> None:
        """Refuse options that do not mean the same for each row of a padded batch as for the row alone.

        Raises
        ------
        InvalidInputError
            The text names the option.
        """
        for name in _NOT_IN_BATCHES:
            ignored = name == "max_length" and self.get("max_new_tokens") is not None
            if self.get(name) and not ignored:
                raise InvalidInputError(
                    f"generate: {name} is {self.get(name)!r}, which a batch of different lengths cannot follow row by "
                    "row; max_new_tokens, min_new_tokens and eos_token_id can be followed"
                )

    def end_tokens(self) -> set[int]:
        """Tokens that end a row."""
        stated = self.get("eos_token_id")
        if stated is None:
            return set()
        return {stated} if isinstance(stated, int) else {int(token) for token in stated}

    def _last_token(self, prompt_tokens: int) -> int:
        """Tokens there may be at the end; transformers itself refuses limits that are not numbers."""
        for stated in self._sources:
            new, total = stated("max_new_tokens"), stated("max_length")
            if isinstance(new, int):
                return prompt_tokens + new
            if isinstance(total, int):
                return total
        return prompt_tokens + _DEFAULT_NEW_TOKENS


def _field(config: Any, name: str) -> Any:
    return getattr(config, name, None)
