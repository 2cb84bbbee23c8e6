"""The KV cache of one sequence in one buffer that chunks are written into and transformers reads in place."""

from collections.abc import Sequence

import torch
from transformers.cache_utils import Cache, DummyLayer, DynamicLayer

from cachegen.errors import InvalidInputError, UnsupportedModelError
from cachegen.kv import KVShape

_SMALLEST_CAPACITY_TOKENS = 64


class KVCache:
    """K and V of all layers for one sequence, and the tokens they belong to.

    Parameters
    ----------
    shape : KVShape
        Layers, KV heads and head size of the model.
    dtype, device
        Of the buffer, ``[layers, 2, kv_heads, capacity, head_dim]``.
    capacity_tokens : int
        Room to start with; the buffer grows when it is used up, which copies it.
    model_fingerprint : bytes
        Whose keys and values these are.
    sharing_layers : int
        Layers of the model, behind those of the shape, that have no keys and values of their own.

    Attributes
    ----------
    past : transformers.Cache
        What ``model(..., cache=...)`` and ``model.generate(..., cache=...)`` take; it shares the buffer.
    token_ids : list of int
        The tokens whose keys and values are held.
    """

    def __init__(
        self,
        shape: KVShape,
        dtype: torch.dtype,
        device: torch.device | str = "cpu",
        capacity_tokens: int = _SMALLEST_CAPACITY_TOKENS,
        model_fingerprint: bytes = b"",
        sharing_layers: int = 0,
    ) -> None:
        self.shape, self.model_fingerprint = shape, model_fingerprint
        self.token_ids: list[int] = []
        size = (shape.num_layers, 2, shape.num_kv_heads, max(1, capacity_tokens), shape.head_dim)
        self._buffer = _Buffer(torch.empty(size, dtype=dtype, device=device))
        self._layers = [_BufferLayer(self._buffer, index) for index in range(shape.num_layers)]
        self.past = Cache(layers=[*self._layers, *(DummyLayer() for _ in range(sharing_layers))])

    @property
    def num_tokens(self) -> int:
        """Tokens held now."""
        return len(self.token_ids)

    @property
    def dtype(self) -> torch.dtype:
        """Element type of keys and values."""
        return self._buffer.tensor.dtype

    def append(self, kv: torch.Tensor, token_ids: Sequence[int]) -> None:
        """Write a chunk behind the tokens held now.

        Parameters
        ----------
        kv : torch.Tensor
            ``[layers, 2, tokens, kv_heads, head_dim]``, any float type; cast to the buffer's.
        token_ids : sequence of int
            The chunk's tokens.

        Raises
        ------
        InvalidInputError
            The chunk has another model's shape or another number of tokens.
        """
        if tuple(kv.shape) != self.shape.chunk_shape(len(token_ids)):
            raise InvalidInputError(
                f"a chunk of shape {tuple(kv.shape)} is not {len(token_ids)} tokens of a cache of {self.shape}"
            )
        start, end = self.num_tokens, self.num_tokens + len(token_ids)
        self._buffer.reserve(end)
        self._buffer.tensor[:, :, :, start:end] = kv.transpose(2, 3)
        self.commit(token_ids)

    def commit(self, token_ids: Sequence[int]) -> None:
        """Take note of tokens whose keys and values are in the buffer already, as after a forward pass."""
        self.token_ids.extend(token_ids)
        self._set_length(self.num_tokens)

    def check_filled(self, new_tokens: int) -> None:
        """Refuse a forward pass that did not write one entry a token into every layer; called before its commit.

        Raises
        ------
        UnsupportedModelError
            The text names the first such layer.
        """
        for index, layer in enumerate(self._layers):
            written = layer.get_seq_length() - self.num_tokens
            if written != new_tokens:
                raise UnsupportedModelError(
                    f"layer {index} wrote {written} entries into the KV cache for {new_tokens} tokens; must be one each"
                )

    def truncate(self, num_tokens: int) -> None:
        """Forget all tokens behind the first ``num_tokens``."""
        del self.token_ids[num_tokens:]
        self._set_length(self.num_tokens)

    def chunk(self, first_token: int, end_token: int) -> torch.Tensor:
        """Return a copy of tokens ``[first_token, end_token)`` as ``[layers, 2, tokens, kv_heads, head_dim]``."""
        if not 0 <= first_token < end_token <= self.num_tokens:
            raise InvalidInputError(
                f"tokens [{first_token}, {end_token}) are not in a cache of {self.num_tokens} tokens"
            )
        return self._buffer.tensor[:, :, :, first_token:end_token].transpose(2, 3).contiguous()

    def _set_length(self, num_tokens: int) -> None:
        for layer in self._layers:
            layer.set_length(num_tokens)


class _Buffer:
    """The tensor that all layers share, ``[layers, 2, kv_heads, capacity, head_dim]``; it grows when asked."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor

    def reserve(self, num_tokens: int) -> None:
        """Make room for ``num_tokens`` in all; grows by half at least, so that appending stays linear.

        Layers keep reading the old tensor, which holds the same values, until their next write.
        """
        capacity = self.tensor.shape[3]
        if num_tokens > capacity:
            size = list(self.tensor.shape)
            size[3] = max(num_tokens, capacity + capacity // 2)
            grown = self.tensor.new_empty(size)
            grown[:, :, :, :capacity] = self.tensor
            self.tensor = grown


class _BufferLayer(DynamicLayer):  # type: ignore[misc]  # transformers publishes no types
    """One layer as transformers sees it; writes in place where DynamicLayer would copy the whole past."""

    def __init__(self, buffer: _Buffer, index: int) -> None:
        super().__init__()
        self._buffer, self._index = buffer, index
        self.is_initialized = True
        self.set_length(0)

    def set_length(self, num_tokens: int) -> None:
        keys, values = self._buffer.tensor[self._index]
        self.keys, self.values = keys[None, :, :num_tokens], values[None, :, :num_tokens]
        self.device = keys.device

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_: object, **__: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if key_states.shape[0] != 1:
            raise InvalidInputError(f"a KVCache holds one sequence, not a batch of {key_states.shape[0]}")
        start = self.get_seq_length()
        end = start + key_states.shape[-2]
        self._buffer.reserve(end)
        keys, values = self._buffer.tensor[self._index]
        keys[:, start:end], values[:, start:end] = key_states[0], value_states[0]
        self.set_length(end)
        return self.keys, self.values
