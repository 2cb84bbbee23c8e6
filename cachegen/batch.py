"""Answer several questions at once, each behind its own context, as the rows of one left-padded batch."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from transformers.cache_utils import DynamicCache

from cachegen.errors import InvalidInputError, UnsupportedModelError
from cachegen.generation_options import Settings
from cachegen.kv_buffer import dynamic_cache
from cachegen.kv_cache import KVCache
from cachegen.model import LanguageModel
from cachegen.model_shape import model_title

# Of two rows of the trial; models of 16 bits agree to 1 %, wrong positions miss by the logits' own size.
_TRIAL_TOKENS = (7, 2)
_TOLERANCE = 0.05


@torch.inference_mode()
def generate_batch(
    model: LanguageModel, caches: Sequence[KVCache], questions: Sequence[Sequence[int]], **options: Any
) -> list[list[int]]:
    """Run transformers' ``generate`` on several contexts and questions side by side; the caches are left as they were.

    Each row's padding is on its left alone and hidden by the attention mask, and its positions count its own tokens. To
    that end each question is run by itself but for its last token; from there on all rows go together.

    Parameters
    ----------
    caches : sequence of KVCache
        One a row, of any lengths; the same one may serve several rows.
    questions : sequence of sequences of int
        One a row, at least one token each.
    **options
        As for :meth:`cachegen.LanguageModel.generate`.

    Returns
    -------
    list of list of int
        The new tokens of each row, up to its first end token.

    Raises
    ------
    InvalidInputError
        As of :meth:`cachegen.LanguageModel.generate`, with the row's number; or an option that a padded batch cannot
        follow row by row.
    MismatchError
        A cache is another model's.
    UnsupportedModelError
        The model counts positions by the cache's length, so that padding would shift them.
    """
    if not caches or len(caches) != len(questions):
        raise InvalidInputError(
            f"{len(caches)} caches and {len(questions)} questions; must be as many, and at least one"
        )
    prompts = [_prompt(model, row, *pair) for row, pair in enumerate(zip(caches, questions, strict=True))]
    settings = Settings(options, model.network.generation_config)
    settings.check_batch()
    settings.check(max(map(len, prompts)), model.max_tokens)
    if "position_ids" not in inspect.signature(model.network.forward).parameters:
        _check_padding(model)
    ids, mask = _left_padded(prompts)
    past = _padded_cache(model, caches, questions, ids.shape[1] - 1)
    output = model.run_generate(ids, mask, past, options)
    return [_until_end(row, settings.end_tokens()) for row in output[:, ids.shape[1] :].tolist()]


def _prompt(model: LanguageModel, row: int, cache: KVCache, question_ids: Sequence[int]) -> torch.Tensor:
    try:
        return model.prompt(cache, question_ids)[0]
    except InvalidInputError as error:
        raise InvalidInputError(f"row {row}: {error}") from error


def _left_padded(prompts: Sequence[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids and attention mask, ``[rows, longest]``.

    Padding is never run. It repeats the row's first token, so that a penalty on tokens of the prompt meets no others.
    """
    length = max(map(len, prompts))
    ids = torch.stack([torch.cat([prompt[:1].expand(length - len(prompt)), prompt]) for prompt in prompts])
    lengths = torch.tensor([len(prompt) for prompt in prompts], device=ids.device)
    mask = torch.arange(length, device=ids.device) >= length - lengths[:, None]
    return ids, mask.long()


def _padded_cache(
    model: LanguageModel, caches: Sequence[KVCache], questions: Sequence[Sequence[int]], length: int
) -> DynamicCache:
    """Contexts and questions but for the last tokens, against the right end of ``length`` places."""
    shape = model.shape
    size = (2, len(caches), shape.num_kv_heads, length, shape.head_dim)
    # zeros, since what is hidden is multiplied by nothing, and nothing times NaN is NaN
    layers = [torch.zeros(size, dtype=model.dtype, device=model.device) for _ in range(shape.num_layers)]
    for row, (cache, question_ids) in enumerate(zip(caches, questions, strict=True)):
        held_tokens = cache.num_tokens
        try:
            if len(question_ids) > 1:
                model.prefill(cache, question_ids[:-1])
            first = length - cache.num_tokens
            for index, layer in enumerate(layers):
                layer[:, row, :, first:] = torch.cat(cache.held(index))
        finally:
            cache.truncate(held_tokens)
    # each is given up once it is copied
    return dynamic_cache((layers.pop(0).unbind() for _ in range(shape.num_layers)), caches[0].sharing_layers)


def _check_padding(model: LanguageModel) -> None:
    """Try a model that cannot be told positions: it must find them from the attention mask."""
    size = model.network.get_input_embeddings().weight.shape[0]
    rows = [[token % size for token in range(length)] for length in _TRIAL_TOKENS]
    caches, questions, alone = [model.new_cache(len(row)) for row in rows], [row[-1:] for row in rows], []
    for cache, row, question_ids in zip(caches, rows, questions, strict=True):
        model.prefill(cache, row)
        alone.append(model.continuation_logits(cache, question_ids)[-1])
    ids, mask = _left_padded([model.prompt(*pair)[0] for pair in zip(caches, questions, strict=True)])
    past = _padded_cache(model, caches, questions, ids.shape[1] - 1)
    together = model.network(ids[:, -1:], attention_mask=mask, cache=past, use_cache=True).logits[:, -1].float()
    for own, padded in zip(alone, together, strict=True):
        if float((own - padded).norm() / own.norm()) > _TOLERANCE:
            raise UnsupportedModelError(
                f"{model_title(model.network, model.name)}: takes no position_ids and counts positions by the cache's "
                "length, so that padding shifts them; answer one question at a time"
            )


def _until_end(new: list[int], end_tokens: set[int]) -> list[int]:
    """What ``generate`` gives for one row alone: the first end token is the last."""
    for place, token in enumerate(new):
        if token in end_tokens:
            return new[: place + 1]
    return new
