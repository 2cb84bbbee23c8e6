"""The tensor that a KV cache lies in, and its layers as transformers sees them."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any, NoReturn

import torch
from transformers.cache_utils import DummyLayer, DynamicCache, DynamicLayer

from cachegen.errors import InvalidInputError


class KVBuffer:
    """The tensor that all layers share, ``[layers, 2, kv_heads, capacity, head_dim]``; it grows when asked.

    Writing and growing exclude each other, since what is written while the tensor is copied would be lost. A layer at a
    time, so that a pass of the model waits for one layer of another thread's chunk at most.
    """

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor
        self._lock = threading.Lock()

    def __deepcopy__(self, _memo: dict[int, Any]) -> KVBuffer:
        return KVBuffer(self.tensor.clone())

    @property
    def capacity_tokens(self) -> int:
        """Tokens that there is room for."""
        return self.tensor.shape[3]

    def reserve(self, num_tokens: int) -> None:
        """Make room for ``num_tokens`` in all; grows by half at least, so that appending stays linear."""
        with self._lock:
            capacity = self.capacity_tokens
            if num_tokens <= capacity:
                return
            size = list(self.tensor.shape)
            size[3] = max(num_tokens, capacity + capacity // 2)
            # as where the first one is made: a forward pass is in inference mode
            with torch.inference_mode(False):
                grown = self.tensor.new_empty(size)
            grown[:, :, :, :capacity] = self.tensor
            self.tensor = grown

    def write(self, layer: int, first_token: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Write one layer's keys and values, each ``[kv_heads, tokens, head_dim]``, where there is room."""
        end_token = first_token + keys.shape[1]
        with self._lock:
            self.tensor[layer, 0, :, first_token:end_token] = keys
            self.tensor[layer, 1, :, first_token:end_token] = values


class KVBufferLayer(DynamicLayer):  # type: ignore[misc]  # transformers publishes no types
    """One layer as transformers sees it; writes in place where DynamicLayer would copy the whole past.

    Its keys and values are looked up in the buffer each time, so that they are never those of a tensor outgrown.
    """

    def __init__(self, buffer: KVBuffer, index: int) -> None:
        # not the parent's, which sets the keys and values that are computed here
        self._buffer, self._index = buffer, index
        self.device = buffer.tensor.device
        self.is_initialized = True
        self.num_tokens = 0

    @property
    def keys(self) -> torch.Tensor:
        """Those of the tokens held, ``[1, kv_heads, tokens, head_dim]``."""
        return self._buffer.tensor[self._index, 0, None, :, : self.num_tokens]

    @property
    def values(self) -> torch.Tensor:
        """Shaped as the keys."""
        return self._buffer.tensor[self._index, 1, None, :, : self.num_tokens]

    def get_seq_length(self) -> int:
        """Tokens held."""
        return self.num_tokens

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_: object, **__: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write behind the tokens held; return all keys and values."""
        if key_states.shape[0] != 1:
            _refuse_batch(f"a batch of {key_states.shape[0]}")
        end = self.num_tokens + key_states.shape[2]
        self._buffer.reserve(end)
        self._buffer.write(self._index, self.num_tokens, key_states[0], value_states[0])
        self.num_tokens = end
        return self.keys, self.values

    def crop(self, tokens_to_remove: int) -> None:
        """Forget the last tokens, as many as the negative number says."""
        if not -self.num_tokens <= tokens_to_remove <= 0:
            raise InvalidInputError(
                f"crop takes tokens to remove as a negative number, here of {self.num_tokens}; not {tokens_to_remove}"
            )
        self.num_tokens += tokens_to_remove

    def reset(self) -> None:
        """Forget all tokens."""
        self.num_tokens = 0

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        """Refused: there is one row."""
        _refuse_batch(f"{len(beam_idx)} beams")

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Refused: there is one row."""
        _refuse_batch(f"a batch of {repeats}")

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """Refused: there is one row."""
        _refuse_batch(f"{len(indices)} rows of a batch")


def _refuse_batch(what: str) -> NoReturn:
    raise InvalidInputError(f"a KVCache holds one sequence, not {what}; its to_dynamic_cache() gives a copy that can")


def dynamic_cache(layers: Iterable[tuple[torch.Tensor, ...]], sharing_layers: int) -> DynamicCache:
    """Make a cache of transformers' own kind of copies of each layer's keys and values.

    Parameters
    ----------
    layers : iterable of (keys, values)
        Each ``[batch, kv_heads, tokens, head_dim]``.
    sharing_layers : int
        Layers behind them that have none of their own.
    """
    made = DynamicCache(layers)
    made.layers.extend(DummyLayer() for _ in range(sharing_layers))
    return made
