"""The canonical KV chunk tensor: its shape, its dtypes, and the check that it can be coded."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from cachegen.errors import InvalidInputError, NonFiniteError

KV_AXES = ("layer", "K/V", "token", "head", "dim")
MAX_LAYERS = 4096
MAX_KV_HEADS = 4096
MAX_HEAD_DIM = 16_384
MAX_CHUNK_TOKENS = 1 << 20
# 2**33 elements is 34 chunks of 1,536 tokens of an 80-layer, 8-head, 128-wide model: room, but not for a lie.
MAX_CHUNK_ELEMENTS = 1 << 33


@dataclass(frozen=True)
class KVDType:
    """One element type: the name users see, the code in a container, the torch dtype."""

    name: str
    code: int
    torch: torch.dtype

    @property
    def item_bytes(self) -> int:
        """Bytes of one element."""
        return self.torch.itemsize


KV_DTYPES = (
    KVDType("float32", 1, torch.float32),
    KVDType("float16", 2, torch.float16),
    KVDType("bfloat16", 3, torch.bfloat16),
)


@dataclass(frozen=True)
class KVShape:
    """What a model fixes about its KV cache; the token count is each chunk's own.

    Raises
    ------
    InvalidInputError
        A size is no integer, below 1, or above the limits of the container format.
    """

    num_layers: int
    num_kv_heads: int
    head_dim: int

    def __post_init__(self) -> None:
        limits = {"num_layers": MAX_LAYERS, "num_kv_heads": MAX_KV_HEADS, "head_dim": MAX_HEAD_DIM}
        for field, limit in limits.items():
            value = getattr(self, field)
            if not isinstance(value, int):
                raise InvalidInputError(f"KV shape: {field} is {value!r}, must be an integer")
            if not 1 <= value <= limit:
                raise InvalidInputError(f"KV shape: {field} is {value}, must be in 1..{limit}")

    @property
    def channels(self) -> int:
        """Elements of one token in one layer, K or V: KV heads times head size."""
        return self.num_kv_heads * self.head_dim

    @property
    def rows(self) -> int:
        """Number of (layer, K/V) pairs, layer-major: row = 2 * layer + (0 for K, 1 for V)."""
        return 2 * self.num_layers

    def chunk_shape(self, num_tokens: int) -> tuple[int, int, int, int, int]:
        """Shape of the chunk tensor, ``(num_layers, 2, num_tokens, num_kv_heads, head_dim)``."""
        return (self.num_layers, 2, num_tokens, self.num_kv_heads, self.head_dim)


@dataclass(frozen=True)
class ChunkLayout:
    """All that fixes the size of one decoded chunk.

    Raises
    ------
    InvalidInputError
        The token or element count is outside the limits of the container format.
    """

    shape: KVShape
    num_tokens: int
    dtype: KVDType

    def __post_init__(self) -> None:
        if not 1 <= self.num_tokens <= MAX_CHUNK_TOKENS:
            raise InvalidInputError(f"chunk: num_tokens is {self.num_tokens}, must be in 1..{MAX_CHUNK_TOKENS}")
        if self.num_elements > MAX_CHUNK_ELEMENTS:
            raise InvalidInputError(f"chunk: {self.num_elements} elements, at most {MAX_CHUNK_ELEMENTS}")

    @property
    def num_elements(self) -> int:
        """Elements of the chunk tensor."""
        return self.shape.rows * self.num_tokens * self.shape.channels

    @property
    def num_bytes(self) -> int:
        """Bytes of the chunk tensor."""
        return self.num_elements * self.dtype.item_bytes

    @property
    def tensor_shape(self) -> tuple[int, int, int, int, int]:
        """Shape of the chunk tensor."""
        return self.shape.chunk_shape(self.num_tokens)


def dtype_of(tensor: torch.Tensor) -> KVDType:
    """Entry of ``KV_DTYPES`` for a tensor; InvalidInputError names the dtype if it has none."""
    for entry in KV_DTYPES:
        if entry.torch == tensor.dtype:
            return entry
    known = ", ".join(entry.name for entry in KV_DTYPES)
    raise InvalidInputError(f"KV tensor has dtype {tensor.dtype}; known: {known}")


def _check_dense(kv: torch.Tensor) -> None:
    """Refuse what has no elements to read one by one: other types, meta and sparse tensors, nested ones."""
    if not isinstance(kv, torch.Tensor):
        raise InvalidInputError(f"KV tensor is a {type(kv).__name__}, must be a torch.Tensor")
    if kv.layout != torch.strided or kv.is_nested or kv.is_meta:
        kind = "nested" if kv.is_nested else f"{kv.layout} on {kv.device}"
        raise InvalidInputError(f"KV tensor is {kind}, must be dense and hold its elements")


def layout_of(kv: torch.Tensor) -> ChunkLayout:
    """Layout of a chunk tensor, whatever its values."""
    _check_dense(kv)
    dtype = dtype_of(kv)
    if kv.ndim != len(KV_AXES) or kv.shape[1] != 2:
        raise InvalidInputError(
            f"KV tensor must be (num_layers, 2, num_tokens, num_kv_heads, head_dim), got shape {tuple(kv.shape)}"
        )
    return ChunkLayout(KVShape(kv.shape[0], kv.shape[3], kv.shape[4]), kv.shape[2], dtype)


def all_finite(kv: torch.Tensor) -> bool:
    """Whether a chunk tensor holds neither NaN nor Inf; one layer after the other, which bounds the memory it takes."""
    return bool(torch.stack([torch.isfinite(layer).all() for layer in kv]).all())


def check_kv(kv: torch.Tensor) -> KVShape:
    """Check that a tensor is a chunk that can be coded.

    Parameters
    ----------
    kv : torch.Tensor
        Shape ``(num_layers, 2, num_tokens, num_kv_heads, head_dim)``; float32, float16 or bfloat16; any
        device, any strides.

    Returns
    -------
    KVShape

    Raises
    ------
    InvalidInputError
        Not a dense tensor, or one of wrong rank, dtype or size.
    NonFiniteError
        The first NaN or Inf, by layer, K/V, token, head and dim.
    """
    layout = layout_of(kv)
    if not all_finite(kv):
        index = tuple(torch.isfinite(kv).logical_not().nonzero()[0].tolist())
        place = ", ".join(f"{axis} {'KV'[i] if axis == 'K/V' else i}" for axis, i in zip(KV_AXES, index, strict=True))
        raise NonFiniteError(f"KV tensor holds {kv[index].item()} at {place}")
    return layout.shape
