"""What the ``transform`` codec takes from a profile: rotary settings, means, metric, bases, ranks and tables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch

from cachegen.codecs.rotary import Rotary
from cachegen.errors import FormatError
from cachegen.kernels.products import product_dtype
from cachegen.kernels.tables import FrequencyTables
from cachegen.kernels.uniform import LEVEL_STEPS
from cachegen.kv import KVShape

# A unit is as many KV heads, layer after layer, as stay within this many channels.
UNIT_CHANNELS = 2880
# Coefficients of one rANS stream.
STREAM_COEFFICIENTS = 512
# Keep every sum of products in range, whatever the file says.
_LARGEST_PARAMETER = 2.0**40

F32 = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Unit:
    """Channels of K or of V that one basis spans: KV heads ``first..end-1``, counted layer-major."""

    index: int
    is_value: bool
    first_channel: int
    end_channel: int

    @property
    def channels(self) -> int:
        """Size of the basis."""
        return self.end_channel - self.first_channel


def units_of(shape: KVShape) -> tuple[Unit, ...]:
    """Units of a model, those of K first: as equal as whole heads allow."""
    heads = shape.num_layers * shape.num_kv_heads
    count = -(-heads // max(1, UNIT_CHANNELS // shape.head_dim))
    edges = [heads * i // count * shape.head_dim for i in range(count + 1)]
    return tuple(Unit(half * count + i, bool(half), edges[i], edges[i + 1]) for half in range(2) for i in range(count))


def stream_spans(rank: int) -> list[tuple[int, int]]:
    """Ranges of coefficients of the streams of a unit."""
    return [(first, min(first + STREAM_COEFFICIENTS, rank)) for first in range(0, rank, STREAM_COEFFICIENTS)]


@dataclass(frozen=True)
class TransformTables:
    """Parameters of the ``transform`` codec for one model.

    Parameters
    ----------
    shape : KVShape
        The model's.
    rotary : Rotary
        How keys turn.
    means : float32 array, ``(2, layers * channels)``
        Of un-rotated keys, and of values.
    key_roots : float32 array, ``(layers * kv_heads, head_dim, head_dim)``
        Symmetric; maps a key without its mean to the space in which equal errors do equal harm.
    value_scales : float32 array, ``(layers,)``
        Does the same for values.
    bases : tuple of float16 arrays, ``(rank of the finest level, channels of the unit)``
        Orthonormal rows, the most energetic first, for each unit.
    ranks : int32 array, ``(levels, units)``
        Coefficients that a level codes; those behind are dead.
    tables : tuple of FrequencyTables
        For each level one row, whose channels are the coefficients of all units in order.

    Raises
    ------
    FormatError
        The arrays do not fit together, or hold values that no calibration makes.
    """

    shape: KVShape
    rotary: Rotary
    means: F32
    key_roots: F32
    value_scales: F32
    bases: tuple[npt.NDArray[np.float16], ...]
    ranks: npt.NDArray[np.int32]
    tables: tuple[FrequencyTables, ...]

    def __post_init__(self) -> None:
        heads, head_dim = self.shape.num_layers * self.shape.num_kv_heads, self.shape.head_dim
        self._check_array("means", (2, heads * head_dim), np.float32)
        self._check_array("key_roots", (heads, head_dim, head_dim), np.float32)
        self._check_inverse()
        self._check_array("value_scales", (self.shape.num_layers,), np.float32)
        self._check_array("ranks", (len(LEVEL_STEPS), len(self.units)), np.int32)
        if self.rotary.frequencies.shape[1] != head_dim or len(self.rotary.of_layer) != self.shape.num_layers:
            raise FormatError(f"transform rotary does not fit {self.shape}")
        if float(self.value_scales.min()) <= 0:
            raise FormatError("transform value_scales has a value that is not above 0")
        if int(self.ranks.min()) < 1:
            raise FormatError("transform ranks has a unit without coefficients")
        if len(self.bases) != len(self.units) or len(self.tables) != len(LEVEL_STEPS):
            raise FormatError(f"transform has {len(self.bases)} bases and {len(self.tables)} levels of tables")
        for unit, basis in zip(self.units, self.bases, strict=True):
            rank = int(self.ranks[:, unit.index].max())
            if basis.dtype != np.float16 or basis.shape != (rank, unit.channels) or rank > unit.channels:
                raise FormatError(f"transform basis {unit.index} is {basis.dtype} {basis.shape}, its rank {rank}")
            # written so that NaN fails too
            if not bool((np.abs(basis) <= 1.01).all()):
                raise FormatError(f"transform basis {unit.index} is not orthonormal")
        for level, table in enumerate(self.tables):
            total = int(self.ranks[level].sum())
            if table.first.shape != (1, total):
                raise FormatError(f"transform table {level} is {table.first.shape}, ranks {self.ranks[level]}")

    def _check_array(self, name: str, shape: tuple[int, ...], dtype: type) -> None:
        array = getattr(self, name)
        if array.dtype != dtype or array.shape != shape:
            raise FormatError(f"transform {name} is {array.dtype} {array.shape}, must be {dtype.__name__} {shape}")
        if not bool((np.abs(array) <= _LARGEST_PARAMETER).all()):
            raise FormatError(f"transform {name} holds a value beyond {_LARGEST_PARAMETER}")

    def _check_inverse(self) -> None:
        try:
            inverse = self.inverse_key_roots
        except np.linalg.LinAlgError as error:
            raise FormatError(f"transform key_roots has no inverse: {error}") from error
        if not bool((inverse.abs() <= _LARGEST_PARAMETER).all()):
            raise FormatError("transform key_roots has an inverse out of range")

    @cached_property
    def units(self) -> tuple[Unit, ...]:
        """Units of the model."""
        return units_of(self.shape)

    @cached_property
    def inverse_key_roots(self) -> torch.Tensor:
        """Inverse of ``key_roots``."""
        return torch.from_numpy(np.linalg.inv(self.key_roots.astype(np.float64)).astype(np.float32))

    @cached_property
    def product_bases(self) -> tuple[torch.Tensor, ...]:
        """The bases as the product with symbols wants them."""
        return tuple(torch.from_numpy(basis).to(product_dtype()) for basis in self.bases)

    def streams(self, level: int) -> list[tuple[Unit, tuple[int, int], FrequencyTables]]:
        """Each stream of a chunk in order: its unit, its range of the unit's coefficients, its tables."""
        return self._streams[level]

    @cached_property
    def _streams(self) -> list[list[tuple[Unit, tuple[int, int], FrequencyTables]]]:
        return [list(self._streams_of(level)) for level in range(len(LEVEL_STEPS))]

    def _streams_of(self, level: int) -> Iterator[tuple[Unit, tuple[int, int], FrequencyTables]]:
        at = 0
        for unit in self.units:
            rank = int(self.ranks[level, unit.index])
            for first, end in stream_spans(rank):
                yield unit, (first, end), self._table_slice(level, at + first, at + end)
            at += rank

    def _table_slice(self, level: int, first: int, end: int) -> FrequencyTables:
        table = self.tables[level]
        runs = table.frequencies[table.starts[first] : table.starts[end]]
        return FrequencyTables(table.first[:, first:end], table.count[:, first:end], runs)
