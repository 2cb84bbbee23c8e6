"""A causal language model of transformers, as far as this project needs it: tokens in, KV cache and logits out."""

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers.cache_utils import Cache

from cachegen.errors import CachegenError, InvalidInputError, MismatchError, UnsupportedModelError
from cachegen.generation_options import Settings
from cachegen.kv_cache import KVCache
from cachegen.model_fingerprint import fingerprint_of
from cachegen.model_lengths import longest_sequence
from cachegen.model_shape import model_title, probe_cache

# What transformers raises where a file is missing, damaged or of another kind; the last three where a configuration
# holds a value that it did not expect.
_LOAD_ERRORS = (
    OSError,
    ValueError,
    RuntimeError,
    ImportError,
    KeyError,
    SafetensorError,
    StrictDataclassError,
    TypeError,
    AttributeError,
)


class LanguageModel:
    """A loaded causal LM with its tokenizer.

    Parameters
    ----------
    model, tokenizer
        From ``transformers``; the model's cache must be one K and one V tensor a layer, alike in all layers.
    name : str
        What reports call it.

    Attributes
    ----------
    shape : KVShape
        Layers, KV heads and head size, read off a real cache rather than from the configuration.
    dtype : torch.dtype
        Element type of the KV cache.
    max_tokens : int or None
        Longest sequence that one cache can hold: what the model was made for, or where its rotary scaling changes; None
        where its configuration does not say.
    fingerprint : bytes
        16 bytes that change with the weights, the configuration or the dtype, so that a KV cache of one model
        is never taken for another's.

    Raises
    ------
    UnsupportedModelError
        The model's cache is otherwise; the text says how.
    """

    def __init__(self, model: Any, tokenizer: Any, name: str) -> None:
        self._model, self._tokenizer, self.name = model, tokenizer, name
        form = probe_cache(model, name)
        self.shape, self.dtype, self._sharing_layers = form.shape, form.dtype, form.sharing_layers
        self.max_tokens = longest_sequence(model)
        self.fingerprint = fingerprint_of(model)
        self._check_continuation()

    @property
    def network(self) -> Any:
        """The transformers model itself, for those who probe it."""
        return self._model

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        device: torch.device = self._model.device
        return device

    def tokenize(self, text: str) -> list[int]:
        """Token ids of a text, without special tokens around them."""
        ids: list[int] = self._tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids

    def detokenize(self, token_ids: Sequence[int]) -> str:
        """Text of token ids, special tokens left out."""
        text: str = self._tokenizer.decode(list(token_ids), skip_special_tokens=True)
        return text

    def new_cache(self, capacity_tokens: int) -> KVCache:
        """An empty cache of this model with room for so many tokens; it grows if they are more."""
        return KVCache(self.shape, self.dtype, self.device, capacity_tokens, self.fingerprint, self._sharing_layers)

    def check_cache(self, cache: KVCache) -> None:
        """Refuse a cache that another model made.

        Raises
        ------
        MismatchError
            Its fingerprint is not this model's.
        """
        if cache.model_fingerprint != self.fingerprint:
            raise MismatchError(
                f"the KV cache is of model {cache.model_fingerprint.hex()}; {self.name} is {self.fingerprint.hex()}"
            )

    @torch.inference_mode()
    def prefill(self, cache: KVCache, token_ids: Sequence[int]) -> torch.Tensor:
        """Run the model over tokens that follow those in the cache, which grows by them.

        Returns
        -------
        torch.Tensor
            Logits of the token after the last one, ``[vocabulary]``.
        """
        logits = self._forward(cache, token_ids, logits_to_keep=1)[-1]
        cache.commit(token_ids)
        return logits

    @torch.inference_mode()
    def continuation_logits(self, cache: KVCache, token_ids: Sequence[int]) -> torch.Tensor:
        """Teacher-forced logits after each of ``token_ids``; the cache is left as it was.

        Returns
        -------
        torch.Tensor
            ``[tokens, vocabulary]``, float32.
        """
        return self._forward(cache, token_ids, logits_to_keep=0)

    @torch.inference_mode()
    def generate(self, cache: KVCache, question_ids: Sequence[int], **options: Any) -> list[int]:
        """Run transformers' ``generate`` on the cached tokens and a question; the cache is left as it was.

        Parameters
        ----------
        question_ids : sequence of int
            At least one token.
        **options
            Passed on: ``max_new_tokens``, ``do_sample`` ...

        Returns
        -------
        list of int
            The new tokens.

        Raises
        ------
        InvalidInputError
            No question, or an option that transformers does not know or that cannot be followed here.
        MismatchError
            The cache is another model's.
        """
        ids = self.prompt(cache, question_ids)
        Settings(options, self._model.generation_config).check(ids.shape[1], self.max_tokens)
        try:
            output = self.run_generate(ids, torch.ones_like(ids), cache.past, options)
        finally:
            # also when it is interrupted: the layers hold question and answer by then
            cache.truncate(cache.num_tokens)
        new: list[int] = output[0, ids.shape[1] :].tolist()
        return new

    def prompt(self, cache: KVCache, question_ids: Sequence[int]) -> torch.Tensor:
        """Cached tokens and a question, checked, ``[1, tokens]``.

        Raises
        ------
        InvalidInputError
            No question, one outside the vocabulary, or longer than the model takes; or a cache with skipped tokens.
        MismatchError
            The cache is another model's.
        """
        if not question_ids:
            raise InvalidInputError("generation needs at least one token behind the cached ones")
        self.check_cache(cache)
        if cache.skipped_tokens:
            raise InvalidInputError("generate does not take a cache with skipped tokens; prefill goes on behind it")
        return self._ids([*cache.token_ids, *question_ids], past=0)

    def run_generate(
        self, ids: torch.Tensor, attention_mask: torch.Tensor, past: Cache, options: dict[str, Any]
    ) -> torch.Tensor:
        """Call transformers' ``generate`` on prompts and a cache of all their tokens but the last ones.

        Returns
        -------
        torch.Tensor
            Prompts and new tokens, ``[rows, tokens]``.

        Raises
        ------
        InvalidInputError
            An option that transformers refuses.
        """
        try:
            output: torch.Tensor = self._model.generate(
                ids,
                attention_mask=attention_mask,
                cache=past,
                use_cache=True,
                return_dict_in_generate=False,
                **options,
            )
        except CachegenError:
            raise
        except (ValueError, TypeError, AttributeError, NotImplementedError) as error:
            raise InvalidInputError(f"generate with {', '.join(options) or 'no options'}: {error}") from error
        return output

    @torch.inference_mode()
    def _check_continuation(self) -> None:
        """Refuse a model that cannot go on from a cache by several tokens at once, as recomputing a chunk does."""
        title, cache = model_title(self._model, self.name), self.new_cache(4)
        try:
            for _ in range(2):
                self.prefill(cache, [0, 0])
        except (torch.OutOfMemoryError, CachegenError):
            raise
        except Exception as error:  # whatever a model's own code raises
            raise UnsupportedModelError(f"{title}: does not run behind a KV cache: {error!r}") from error

    def _forward(self, cache: KVCache, token_ids: Sequence[int], logits_to_keep: int) -> torch.Tensor:
        self.check_cache(cache)
        first = cache.num_tokens + cache.skipped_tokens
        ids = self._ids(token_ids, past=first)
        placed = self._positions(first, len(token_ids)) if cache.skipped_tokens else {}
        try:
            output = self._model(ids, cache=cache.past, use_cache=True, logits_to_keep=logits_to_keep, **placed)
            cache.check_filled(len(token_ids))
        finally:
            # the values stay in the buffer for a commit; a pass that failed half-way leaves no layer longer
            cache.truncate(cache.num_tokens)
        logits: torch.Tensor = output.logits[0].float()
        return logits

    def _positions(self, first: int, count: int) -> dict[str, torch.Tensor]:
        """Positions of tokens that transformers would count otherwise."""
        if "position_ids" not in inspect.signature(self._model.forward).parameters:
            raise UnsupportedModelError(
                f"{model_title(self._model, self.name)}: takes no position_ids, so nothing can follow skipped tokens"
            )
        return {"position_ids": torch.arange(first, first + count, device=self.device)[None]}

    def _ids(self, token_ids: Sequence[int], past: int) -> torch.Tensor:
        if not token_ids:
            raise InvalidInputError("no tokens were given")
        if self.max_tokens and past + len(token_ids) > self.max_tokens:
            raise InvalidInputError(
                f"{past + len(token_ids)} tokens are more than {self.name} was made for, {self.max_tokens}"
            )
        ids = torch.tensor([list(token_ids)], dtype=torch.long)
        # refused here: a look-up out of bounds is an IndexError on a CPU, and the end of the process on a GPU
        size = self._model.get_input_embeddings().weight.shape[0]
        outside = ((ids[0] < 0) | (ids[0] >= size)).nonzero()
        if len(outside):
            place = int(outside[0])
            raise InvalidInputError(f"token {place} has id {int(ids[0, place])}, the vocabulary is 0 to {size - 1}")
        return ids.to(self.device)


def load_model(
    name_or_path: str | Path, *, device: str | None = None, dtype: torch.dtype | None = None
) -> LanguageModel:
    """Load a causal LM by folder or hub name.

    Parameters
    ----------
    name_or_path : str or Path
        A folder written by ``save_pretrained``, or a hub name.
    device : str, optional
        Default: ``cuda`` where there is one, else ``cpu``.
    dtype : torch.dtype, optional
        Default: :func:`serving_dtype`.

    Raises
    ------
    InvalidInputError
        Nothing loadable lies there, or a model without all of its weights or its tokenizer.
    UnsupportedModelError
        Its cache is not one K and one V tensor a layer, alike in all layers.
    """
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    dtype = dtype or serving_dtype(device)
    try:
        # first, so that what fails behind it is known not to be a wrong name
        AutoConfig.from_pretrained(name_or_path)
        tokenizer = _load_tokenizer(name_or_path)
        model, found = AutoModelForCausalLM.from_pretrained(name_or_path, dtype=dtype, output_loading_info=True)
    except CachegenError:
        raise
    except _LOAD_ERRORS as error:
        raise InvalidInputError(f"no causal language model at {str(name_or_path)!r}: {error}") from error
    if missing := sorted(found["missing_keys"]):
        # transformers draws them at random and goes on
        raise InvalidInputError(
            f"{str(name_or_path)!r} lacks {len(missing)} of its model's weights, such as {missing[0]}"
        )
    return LanguageModel(model.to(device).eval(), tokenizer, Path(name_or_path).name)


def _load_tokenizer(name_or_path: str | Path) -> Any:
    missing = f"no tokenizer with the model at {str(name_or_path)!r}"
    try:
        tokenizer = AutoTokenizer.from_pretrained(name_or_path)
    except _LOAD_ERRORS as error:
        raise InvalidInputError(f"{missing}: {error}") from error
    # for some families transformers makes one of special tokens alone where there are no files of it
    if not tokenizer.get_vocab().keys() - tokenizer.all_special_tokens - tokenizer.get_added_vocab().keys():
        raise InvalidInputError(f"{missing}: its vocabulary is empty; tokenizer.save_pretrained writes its files")
    return tokenizer


def measuring_dtype() -> torch.dtype | None:
    """In what to load a model whose predictions are compared: float32 on a CPU, None (its own) where a GPU serves it.

    In 16 bits the rounding of a model's own arithmetic moves its predictions after any change of the cache, by more
    than the finest encodings do.
    """
    return None if torch.cuda.is_available() else torch.float32


def serving_dtype(device: str) -> torch.dtype:
    """In what a model is loaded by default: bfloat16 on CUDA and on CPUs that multiply it natively, else float32."""
    if device.startswith("cuda"):
        return torch.bfloat16
    flags = Path("/proc/cpuinfo")
    native = flags.exists() and any(flag in flags.read_text() for flag in ("avx512_bf16", "amx_bf16"))
    return torch.bfloat16 if native else torch.float32
