"""Find out how a model's keys turn with their position, by running it."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from cachegen.codecs.rotary import Rotary, no_rotary
from cachegen.errors import UnsupportedModelError
from cachegen.model import LanguageModel
from cachegen.model_lengths import first_changing_token
from cachegen.model_shape import model_title

_PROBE_POSITIONS = (0, 1, 2, 5, 19, 83, 331, 1361)
# Keys of 16-bit models agree to 1 %; a wrong theta or pairing misses by the keys' own size.
_TOLERANCE = 0.05
# Of a run of one token repeated, where it cannot be placed at a position alone.
_PROBE_LENGTH = 16

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
    if "position_ids" not in inspect.signature(model.network.forward).parameters:
        return _without_positions(model)
    limit = first_changing_token(model.network)
    highest = min([limit or _PROBE_POSITIONS[-1] + 1, model.max_tokens or _PROBE_POSITIONS[-1] + 1])
    positions = np.array([position for position in _PROBE_POSITIONS if position < highest])
    keys, values = _probe(model, positions)
    # read after the run: it brings frequencies that a longer sequence has changed back to what they are below the limit
    kinds = [_still(model.shape.head_dim), *_candidates(model)]
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


def _without_positions(model: LanguageModel) -> Rotary:
    """No rotation, for a model that cannot be asked for one position alone; its first layer is looked at.

    There, one token's keys and values are the same all along a sequence, unless positions are added to the embeddings,
    which shows in the values, or unless the keys turn.
    """
    length = min(_PROBE_LENGTH, model.max_tokens or _PROBE_LENGTH)
    cache = model.new_cache(length)
    model.prefill(cache, [1] * length)
    keys, values = cache.chunk(0, length)[0].float().cpu()
    if _agree(values) and not _agree(keys):
        raise UnsupportedModelError(
            f"{model_title(model.network, model.name)}: keys turn with their position, and the model takes no "
            "position_ids to find out how"
        )
    return no_rotary(model.shape.num_layers, model.shape.head_dim)


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
            f"{model_title(model.network, model.name)}: keys of layer {layer} turn with their position in none of the "
            f"{len(kinds)} ways that its rotary modules offer (closest: {errors[best]:.0%} off)"
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
    """Every rotation that the frequencies held by the model can mean, each once."""
    kinds: dict[bytes, Kind] = {}
    for frequencies in _held_frequencies(model.network):
        if 2 * len(frequencies) <= model.shape.head_dim:
            for kind in _pairings(frequencies, model.shape.head_dim):
                kinds.setdefault(kind[0].tobytes() + kind[1].tobytes(), kind)
    return list(kinds.values())


def _held_frequencies(network: Any) -> Iterator[F32]:
    """Radians a token, from the model's buffers: as they are, or in a table of sines, then cosines, by position."""
    for name, buffer in network.named_buffers():
        if name.endswith("inv_freq") and buffer.ndim == 1:
            yield buffer.detach().float().cpu().numpy()
        elif name.endswith("embed_positions") and buffer.ndim == 2 and len(buffer) > 1:
            sines, cosines = buffer[1].detach().float().cpu().chunk(2)
            yield torch.atan2(sines, cosines).numpy()


def _pairings(inverse: F32, head_dim: int) -> Iterator[Kind]:
    """Halves or neighbours paired, at either end of the head, turning either way."""
    pairs = len(inverse)
    halves = np.arange(pairs), np.arange(pairs) + pairs
    neighbours = 2 * np.arange(pairs), 2 * np.arange(pairs) + 1
    for (first, second), way in itertools.product((halves, neighbours), (1, -1)):
        for offset in {0, head_dim - 2 * pairs}:
            frequencies, partners = _still(head_dim)
            partners[first + offset], partners[second + offset] = second + offset, first + offset
            frequencies[first + offset], frequencies[second + offset] = -way * inverse, way * inverse
            yield frequencies, partners
