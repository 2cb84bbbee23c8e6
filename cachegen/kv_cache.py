"""The KV cache of one sequence in one buffer that chunks are written into and transformers reads in place."""

from collections.abc import Sequence

import torch
from transformers.cache_utils import Cache, DummyLayer, DynamicCache

from cachegen.errors import InvalidInputError, UnsupportedModelError
from cachegen.kv import KVShape
from cachegen.kv_buffer import KVBuffer, KVBufferLayer, dynamic_cache

_SMALLEST_CAPACITY_TOKENS = 64


class KVCache:
    """K and V of all layers for one sequence, and the tokens they belong to.

    One thread may run the model on it while others :meth:`write` chunks further behind; everything else is for one
    thread at a time.

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
        What ``model(..., cache=...)`` and ``model.generate(..., cache=...)`` of transformers take for one sequence. It
        shares the buffer, so that they write behind the tokens held; :meth:`truncate` forgets what they wrote. For
        beams, batches and all else, :meth:`to_dynamic_cache` gives a copy.
    token_ids : list of int
        The tokens whose keys and values are held.
    skipped_tokens : int
        Tokens of the text that are not held while their places count, as when a cache keeps the keys and values that
        matter, each turned to its original position: what follows is at position ``num_tokens + skipped_tokens``.
        0 at first; to be set by whoever left them out.

    Notes
    -----
    ``copy.deepcopy`` copies a cache with its buffer, spare room and all.
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
        self.shape, self.model_fingerprint, self.sharing_layers = shape, model_fingerprint, sharing_layers
        self.token_ids: list[int] = []
        self.skipped_tokens = 0
        size = (shape.num_layers, 2, shape.num_kv_heads, max(1, capacity_tokens), shape.head_dim)
        # a tensor made in inference mode could not be written outside of it
        with torch.inference_mode(False):
            self._buffer = KVBuffer(torch.empty(size, dtype=dtype, device=device))
        self._layers = [KVBufferLayer(self._buffer, index) for index in range(shape.num_layers)]
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
        self._check_chunk(kv, len(token_ids))
        self.write(self.num_tokens, kv)
        self.commit(token_ids)

    def write(self, first_token: int, kv: torch.Tensor) -> None:
        """Write a chunk at its place, whether or not the tokens before it are there yet.

        The tokens held stay the same ones; :meth:`commit` takes note of the chunk's own once all before them are
        noted. Room is made where it is missing; to have it from the start spares copying what is there.

        Parameters
        ----------
        first_token : int
            Place of the chunk's first token in the sequence, from 0.
        kv : torch.Tensor
            ``[layers, 2, tokens, kv_heads, head_dim]``, any float type; cast to the buffer's.

        Raises
        ------
        InvalidInputError
            The chunk has another model's shape, or the place is negative.
        """
        tokens = kv.shape[2] if kv.ndim == 5 else 0
        self._check_chunk(kv, tokens)
        if first_token < 0:
            raise InvalidInputError(f"a chunk cannot be written at token {first_token}; the first one is 0")
        self._buffer.reserve(first_token + tokens)
        for layer in range(self.shape.num_layers):
            keys, values = kv[layer].transpose(1, 2)
            self._buffer.write(layer, first_token, keys, values)

    def room(self, first_token: int, num_tokens: int) -> torch.Tensor:
        """Where a chunk belongs, to be filled in: what is written to the tensor is in the cache.

        Other than :meth:`write`, it takes no note of the cache outgrowing its buffer, which must not happen meanwhile.

        Returns
        -------
        torch.Tensor
            ``[layers, 2, tokens, kv_heads, head_dim]``, a view of the buffer.

        Raises
        ------
        InvalidInputError
            The buffer has no such place.
        """
        end = first_token + num_tokens
        if not 0 <= first_token < end <= self._buffer.capacity_tokens:
            raise InvalidInputError(
                f"tokens [{first_token}, {end}) have no place in a buffer of {self._buffer.capacity_tokens}"
            )
        return self._buffer.tensor[:, :, :, first_token:end].transpose(2, 3)

    def commit(self, token_ids: Sequence[int]) -> None:
        """Take note of the next tokens, whose keys and values are in the buffer already.

        Raises
        ------
        InvalidInputError
            There is no room for so many, so they cannot have been written.
        """
        end, capacity = self.num_tokens + len(token_ids), self._buffer.capacity_tokens
        if end > capacity:
            raise InvalidInputError(f"tokens [{self.num_tokens}, {end}) are not in a buffer of {capacity} tokens")
        self.token_ids.extend(token_ids)
        self._set_length(end)

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
        """Return a copy of tokens ``[first_token, end_token)`` as ``[layers, 2, tokens, kv_heads, head_dim]``.

        Raises
        ------
        InvalidInputError
            The cache does not hold these tokens, or they are none.
        """
        if not 0 <= first_token < end_token <= self.num_tokens:
            raise InvalidInputError(
                f"tokens [{first_token}, {end_token}) are not in a cache of {self.num_tokens} tokens"
            )
        return self._buffer.tensor[:, :, :, first_token:end_token].transpose(2, 3).contiguous()

    def held(self, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values of one layer, each ``[1, kv_heads, tokens, head_dim]``; they share the buffer."""
        return self._layers[layer].keys, self._layers[layer].values

    def to_dynamic_cache(self, batch_size: int = 1) -> DynamicCache:
        """Copy the tokens held into a cache of transformers' own kind, for any use of it.

        What is done with the copy leaves this cache as it is: beam search, several sequences, assisted generation,
        ``crop``, ``reset``. ``generate`` takes it with the tokens held and the new ones as ``input_ids``::

            ids = torch.tensor([cache.token_ids + question_ids])
            network.generate(ids, cache=cache.to_dynamic_cache(4), num_beams=4)

        Assisted generation takes the question alone as ``input_ids``, with an ``attention_mask`` of all tokens: its
        first step (in transformers 5.24) runs all that it is given, also what the cache holds.

        Parameters
        ----------
        batch_size : int
            Copies of the sequence, side by side: as many as ``num_beams`` or ``num_return_sequences``.

        Returns
        -------
        transformers.DynamicCache
            Of the size of the tokens held, ``batch_size`` times; layers that slide hold them all.

        Raises
        ------
        InvalidInputError
            ``batch_size`` is less than 1.
        """
        if batch_size < 1:
            raise InvalidInputError(f"batch_size is {batch_size}; must be at least 1")
        held = (self.held(layer) for layer in range(self.shape.num_layers))
        # the layers copy what they are given
        return dynamic_cache(
            ((keys.expand(batch_size, -1, -1, -1), values.expand(batch_size, -1, -1, -1)) for keys, values in held),
            self.sharing_layers,
        )

    def _check_chunk(self, kv: torch.Tensor, num_tokens: int) -> None:
        if tuple(kv.shape) != self.shape.chunk_shape(num_tokens):
            raise InvalidInputError(
                f"a chunk of shape {tuple(kv.shape)} is not {num_tokens} tokens of a cache of {self.shape}"
            )

    def _set_length(self, num_tokens: int) -> None:
        for layer in self._layers:
            layer.num_tokens = num_tokens
