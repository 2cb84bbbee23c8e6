"""Find out how a model's keys turn with their position, by running it."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from cachegen.codecs.rotary import Rotary, no_rotary
from cachegen.errors import UnsupportedModelError
from cachegen.model import LanguageModel

_PROBE_POSITIONS = (0, 1, 2, 5, 19, 83, 331, 1361)
# Keys of 16-bit models agree to 1 %; a wrong theta or pairing misses by the keys' own size.
_TOLERANCE = 0.05
_CHANGING_TYPES = {"dynamic", "longrope"}

F32 = npt.NDArray[np.float32]
Kind = tuple[F32, npt.NDArray[np.uint16]]


def find_rotary(model: LanguageModel) -> Rotary:
    """How the model's keys turn with their position.

    One token alone attends to itself alone, so everything in the model but the rotation of its key is the same at every
    position. Each rotation that the model's own rotary modules can make is tried on each layer, and none at all.

    Raises
    ------
    UnsupportedModelError
        Some layer's keys turn in none of these ways.
    """
    limit = _first_changing_token(model)
    highest = min([limit or _PROBE_POSITIONS[-1] + 1, model.max_tokens or _PROBE_POSITIONS[-1] + 1])
    kinds = [_still(model.shape.head_dim), *_candidates(model)]
    if "position_ids" not in inspect.signature(model.network.forward).parameters:
        if len(kinds) > 1:
            raise UnsupportedModelError(f"{model.name}: has rotary keys but takes no position_ids to probe them with")
        return no_rotary(model.shape.num_layers, model.shape.head_dim)
    positions = np.array([position for position in _PROBE_POSITIONS if position < highest])
    keys, values = _probe(model, positions)
    if len(kinds) == 1 and not _agree(values[0]):
        # positions are added to the embeddings, so nothing is left to compare keys by; nor do they turn
        return no_rotary(model.shape.num_layers, model.shape.head_dim)
    chosen = [_kind_of_layer(model, layer, keys[layer], positions, kinds) for layer in range(model.shape.num_layers)]
    used = sorted(set(chosen))
    return Rotary(
        np.array([used.index(kind) for kind in chosen], dtype=np.uint8),
        np.stack([kinds[kind][0] for kind in used]),
        np.stack([kinds[kind][1] for kind in used]),
        limit if any(kinds[kind][0].any() for kind in used) else 0,
    )


def _kind_of_layer(
    model: LanguageModel, layer: int, keys: torch.Tensor, positions: npt.NDArray[np.int64], kinds: Sequence[Kind]
) -> int:
    errors = []
    for frequencies, partners in kinds:
        rotary = Rotary(np.zeros(1, dtype=np.uint8), frequencies[None], partners[None])
        errors.append(_spread(rotary.apply(keys[None], -positions)[0]))
    best = int(np.argmin(errors))
    if errors[best] > _TOLERANCE:
        raise UnsupportedModelError(
            f"{model.name}: keys of layer {layer} turn with their position in none of the {len(kinds)} ways that its "
            f"rotary modules offer (closest: {errors[best]:.0%} off)"
        )
    return best


def _spread(x: torch.Tensor) -> float:
    """Largest relative difference of any entry along the first axis to the first one."""
    size = x[0].norm()
    return float((x - x[0]).flatten(1).norm(dim=1).max() / size) if size > 0 else 0.0


def _agree(x: torch.Tensor) -> bool:
    return _spread(x) <= _TOLERANCE


@torch.inference_mode()
def _probe(model: LanguageModel, positions: npt.NDArray[np.int64]) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and values of one token at each position, ``(layers, positions, kv_heads, head_dim)`` float32."""
    ids = torch.ones((1, 1), dtype=torch.long, device=model.device)
    pieces: list[list[torch.Tensor]] = [[], []]
    for position in positions:
        cache = model.new_cache(1)
        where = torch.full((1, 1), int(position), dtype=torch.long, device=model.device)
        model.network(ids, position_ids=where, cache=cache.past, use_cache=True)
        cache.commit([1])
        for half, piece in enumerate(pieces):
            piece.append(cache.chunk(0, 1)[:, half, 0].float().cpu())
    return torch.stack(pieces[0], dim=1), torch.stack(pieces[1], dim=1)


def _still(head_dim: int) -> Kind:
    return np.zeros(head_dim, dtype=np.float32), np.arange(head_dim, dtype=np.uint16)


def _candidates(model: LanguageModel) -> list[Kind]:
    """Every rotation that the frequencies held by the model can mean: halves or neighbours paired, at either end."""
    kinds: dict[bytes, Kind] = {}
    for name, buffer in model.network.named_buffers():
        if name.endswith("inv_freq") and buffer.ndim == 1 and 2 * len(buffer) <= model.shape.head_dim:
            for kind in _pairings(buffer.detach().float().cpu().numpy(), model.shape.head_dim):
                kinds.setdefault(kind[0].tobytes() + kind[1].tobytes(), kind)
    return list(kinds.values())


def _pairings(inverse: F32, head_dim: int) -> Iterator[Kind]:
    pairs = len(inverse)
    halves = np.arange(pairs), np.arange(pairs) + pairs
    neighbours = 2 * np.arange(pairs), 2 * np.arange(pairs) + 1
    for first, second in (halves, neighbours):
        for offset in {0, head_dim - 2 * pairs}:
            frequencies, partners = _still(head_dim)
            partners[first + offset], partners[second + offset] = second + offset, first + offset
            frequencies[first + offset], frequencies[second + offset] = -inverse, inverse
            yield frequencies, partners


def _first_changing_token(model: LanguageModel) -> int:
    """Position from which on the frequencies depend on the sequence's length; 0 if they never do."""
    limits = []
    for module in model.network.modules():
        kind = getattr(module, "rope_type", None)
        kinds = set(kind.values()) if isinstance(kind, dict) else {kind}
        if kinds & _CHANGING_TYPES:
            limits.append(_original_length(module, model))
    return min(limits, default=0)


def _original_length(module: Any, model: LanguageModel) -> int:
    parameters = getattr(module.config, "rope_parameters", None) or {}
    nested = [parameters, *(value for value in parameters.values() if isinstance(value, dict))]
    stated = [
        each["original_max_position_embeddings"] for each in nested if each.get("original_max_position_embeddings")
    ]
    stated.append(getattr(module, "original_max_seq_len", None) or model.max_tokens)
    return min(int(length) for length in stated if length)
