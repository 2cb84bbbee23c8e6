"""A causal language model of transformers, as far as this project needs it: tokens in, KV cache and logits out."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import xxhash
from transformers import AutoModelForCausalLM, AutoTokenizer

from cachegen.chunking import MODEL_FINGERPRINT_BYTES
from cachegen.errors import InvalidInputError, MismatchError, UnsupportedModelError
from cachegen.kv import KVShape
from cachegen.kv_cache import KVCache


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
    fingerprint : bytes
        16 bytes that change with the weights, the configuration or the dtype, so that a KV cache of one model
        is never taken for another's.
    """

    def __init__(self, model: Any, tokenizer: Any, name: str) -> None:
        self._model, self._tokenizer, self.name = model, tokenizer, name
        self.shape = _probe_shape(model, name)
        self.fingerprint = _fingerprint(model)

    @property
    def network(self) -> Any:
        """The transformers model itself, for those who probe it."""
        return self._model

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        device: torch.device = self._model.device
        return device

    @property
    def dtype(self) -> torch.dtype:
        """Element type of weights and KV cache."""
        dtype: torch.dtype = self._model.dtype
        return dtype

    @property
    def max_tokens(self) -> int | None:
        """Longest sequence the model was made for, None where its configuration does not say."""
        return getattr(self._model.config, "max_position_embeddings", None)

    def tokenize(self, text: str, *, special_tokens: bool = False) -> list[int]:
        """Token ids of a text."""
        ids: list[int] = self._tokenizer(text, add_special_tokens=special_tokens)["input_ids"]
        return ids

    def detokenize(self, token_ids: Sequence[int]) -> str:
        """Text of token ids, special tokens left out."""
        text: str = self._tokenizer.decode(list(token_ids), skip_special_tokens=True)
        return text

    def new_cache(self, capacity_tokens: int) -> KVCache:
        """An empty cache of this model with room for so many tokens; it grows if they are more."""
        return KVCache(self.shape, self.dtype, self.device, capacity_tokens, self.fingerprint)

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
        """
        if not question_ids:
            raise InvalidInputError("generation needs at least one token behind the cached ones")
        self.check_cache(cache)
        ids = self._ids([*cache.token_ids, *question_ids], past=0)
        try:
            output = self._model.generate(
                ids, attention_mask=torch.ones_like(ids), cache=cache.past, use_cache=True, **options
            )
        finally:
            # also when it is interrupted: the layers hold question and answer by then
            cache.truncate(cache.num_tokens)
        new: list[int] = output[0, ids.shape[1] :].tolist()
        return new

    def _forward(self, cache: KVCache, token_ids: Sequence[int], logits_to_keep: int) -> torch.Tensor:
        self.check_cache(cache)
        ids = self._ids(token_ids, past=cache.num_tokens)
        try:
            output = self._model(ids, cache=cache.past, use_cache=True, logits_to_keep=logits_to_keep)
        finally:
            # the values stay in the buffer for a commit; a pass that failed half-way leaves no layer longer
            cache.truncate(cache.num_tokens)
        logits: torch.Tensor = output.logits[0].float()
        return logits

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
        Default: bfloat16 on CUDA and on CPUs that multiply it natively, else float32.

    Raises
    ------
    InvalidInputError
        Nothing loadable lies there.
    UnsupportedModelError
        Its cache is not one K and one V tensor a layer, alike in all layers.
    """
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    dtype = dtype or _native_dtype(device)
    try:
        tokenizer = AutoTokenizer.from_pretrained(name_or_path)
        model = AutoModelForCausalLM.from_pretrained(name_or_path, dtype=dtype, attn_implementation="sdpa")
    except (OSError, ValueError) as error:
        raise InvalidInputError(f"no causal language model at {str(name_or_path)!r}: {error}") from error
    return LanguageModel(model.to(device).eval(), tokenizer, Path(name_or_path).name)


def _native_dtype(device: str) -> torch.dtype:
    if device.startswith("cuda"):
        return torch.bfloat16
    flags = Path("/proc/cpuinfo")
    native = flags.exists() and any(flag in flags.read_text() for flag in ("avx512_bf16", "amx_bf16"))
    return torch.bfloat16 if native else torch.float32


@torch.inference_mode()
def _probe_shape(model: Any, name: str) -> KVShape:
    """Run one token and read the shape off the cache that comes back."""
    if model.config.is_encoder_decoder:
        raise UnsupportedModelError(f"{name}: an encoder-decoder model has no single KV cache to stream")
    output = model(torch.zeros((1, 1), dtype=torch.long, device=model.device), use_cache=True)
    layers = getattr(getattr(output, "cache", None), "layers", [])
    shapes = {(tuple(k.shape), tuple(v.shape)) for k, v in map(_keys_and_values, layers)}
    if len(shapes) != 1 or len(set(*shapes)) != 1 or len(next(iter(shapes))[0]) != 4:
        raise UnsupportedModelError(
            f"{name}: needs one K and one V tensor [batch, heads, tokens, head_dim] a layer, the same in all "
            f"layers; this model's cache has {sorted(shapes) or 'none'}"
        )
    (_, heads, _, head_dim), _ = shapes.pop()
    return KVShape(num_layers=len(layers), num_kv_heads=heads, head_dim=head_dim)


def _keys_and_values(layer: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """K and V of a cache layer; layers that hold something else (a state-space model's) have neither."""
    empty = torch.empty(0)
    keys, values = getattr(layer, "keys", None), getattr(layer, "values", None)
    return (empty if keys is None else keys), (empty if values is None else values)


def _fingerprint(model: Any) -> bytes:
    """Hash configuration, dtype and every weight, so that even one edited token's embedding makes another model."""
    config = {k: v for k, v in model.config.to_dict().items() if k not in _NOT_IDENTITY}
    config["class"] = type(model).__name__
    digest = hashlib.blake2b(repr(sorted(config.items())).encode(), digest_size=MODEL_FINGERPRINT_BYTES)
    for key, tensor in sorted(model.state_dict().items()):
        elements = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
        digest.update(f"{key} {tuple(tensor.shape)} {tensor.dtype} ".encode())
        digest.update(xxhash.xxh3_128_digest(elements.numpy()))
    return digest.digest()


# Where a model was loaded from and which release saved it change nothing in its cache; its class and the dtype of its
# weights are hashed as they are, whether the configuration names them or not.
_NOT_IDENTITY = {"_name_or_path", "transformers_version", "architectures", "dtype"}
