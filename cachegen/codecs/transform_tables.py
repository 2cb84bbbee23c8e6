"""What the ``transform`` codec takes from a profile: rotary settings, means, metric, bases, ranks and tables."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from cachegen.codecs.basis import Basis
from cachegen.codecs.codebook import Codebook
from cachegen.codecs.codebook_search import CodebookSearch
from cachegen.codecs.rotary import LARGEST_PARAMETER, Rotary
from cachegen.codecs.token_groups import TokenGroup
from cachegen.codecs.transform_parameters import DecodeParameters, decode_parameters
from cachegen.codecs.units import JOINT, Grouping, Unit, units_of
from cachegen.errors import FormatError
from cachegen.kernels.tables import FrequencyTables
from cachegen.kernels.uniform import GRID_STEPS
from cachegen.kv import KVShape

# Coefficients of one rANS stream, and of one of few tokens at most.
STREAM_COEFFICIENTS = 512
MAX_STREAM_COEFFICIENTS = 4096

F32 = npt.NDArray[np.float32]


def stream_coefficients(num_tokens: int) -> int:
    """Coefficients of a stream of so many tokens: the fewer tokens, the more, so that a stream is worth its states."""
    coefficients = STREAM_COEFFICIENTS
    while coefficients < MAX_STREAM_COEFFICIENTS and 2 * coefficients * num_tokens <= STREAM_COEFFICIENTS**2:
        coefficients *= 2
    return coefficients


@dataclass(frozen=True)
class Span:
    """Coefficients ``first..end-1`` of a unit, which one stream holds, and their tables."""

    first: int
    end: int
    tables: FrequencyTables


class TransformKind(NamedTuple):
    """What differs between the parameters of one release and another."""

    grouping: Grouping
    table_reach: int
    in_stages: bool


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
    bases : tuple of Basis
        For each unit, of the rank at the finest step; whose blocks are runs of whole heads.
    ranks : int32 array, ``(steps, units)``
        Coefficients that are coded at each step of the grid; those behind are dead.
    tables : tuple of FrequencyTables
        For each step one row, whose channels are the coefficients of all units in order: as many of each as are coded
        at the step ``table_reach`` places before, or the finest.
    codebook : Codebook, optional
        What a token's identity says of it; default: nothing, and all is coded.
    grouping : Grouping
        How channels make units; a profile's file has no place for another than ``JOINT`` and ``APART``.
    table_reach : int
        Places of the grid by which the tables that code a token may lie before or behind its step; 0 where tokens are
        not predicted from earlier ones either.

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
    bases: tuple[Basis, ...]
    ranks: npt.NDArray[np.int32]
    tables: tuple[FrequencyTables, ...]
    codebook: Codebook | None = None
    grouping: Grouping = JOINT
    table_reach: int = 0
    _slices: dict[tuple[int, int, int, int], list[Span]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    _parameters: dict[torch.device, DecodeParameters] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        heads, head_dim = self.shape.num_layers * self.shape.num_kv_heads, self.shape.head_dim
        self._check_array("means", (2, heads * head_dim), np.float32)
        self._check_array("key_roots", (heads, head_dim, head_dim), np.float32)
        self._check_inverse()
        self._check_array("value_scales", (self.shape.num_layers,), np.float32)
        self._check_array("ranks", (len(GRID_STEPS), len(self.units)), np.int32)
        if self.rotary.frequencies.shape[1] != head_dim or len(self.rotary.of_layer) != self.shape.num_layers:
            raise FormatError(f"transform rotary does not fit {self.shape}")
        if float(self.value_scales.min()) < 1 / LARGEST_PARAMETER:
            raise FormatError(f"transform value_scales has a value below {1 / LARGEST_PARAMETER}")
        if int(self.ranks.min()) < 1:
            raise FormatError("transform ranks has a unit without coefficients")
        if bool((np.diff(self.ranks, axis=0) > 0).any()):
            raise FormatError("transform ranks rise with the step")
        if self.table_reach < 0:
            raise FormatError(f"transform tables reach {self.table_reach} places")
        if len(self.bases) != len(self.units) or len(self.tables) != len(GRID_STEPS):
            raise FormatError(f"transform has {len(self.bases)} bases and tables of {len(self.tables)} steps")
        for unit, basis in zip(self.units, self.bases, strict=True):
            self._check_basis(unit, basis)
        for place, table in enumerate(self.tables):
            ranks = self.table_ranks(place)
            if table.first.shape != (1, int(ranks.sum())):
                raise FormatError(f"transform table {place} is {table.first.shape}, ranks {ranks}")
        if self.codebook is not None:
            self._check_codebook(self.codebook)

    def _check_basis(self, unit: Unit, basis: Basis) -> None:
        try:
            basis.check()
        except FormatError as error:
            raise FormatError(f"transform basis {unit.index}: {error}") from error
        if basis.halves != len(unit.halves):
            raise FormatError(f"transform basis {unit.index} has {basis.halves} halves, its unit {len(unit.halves)}")
        widths = [rows.shape[1] for rows in basis.blocks]
        of_head = len(unit.halves) * self.shape.head_dim
        if sum(widths) != unit.channels or any(width == 0 or width % of_head for width in widths):
            raise FormatError(f"transform basis {unit.index} has blocks of {widths} channels, its unit {unit.channels}")
        rank = int(self.ranks[:, unit.index].max())
        if basis.rank != rank or rank > unit.channels:
            raise FormatError(f"transform basis {unit.index} has {basis.rank} coefficients, its rank is {rank}")

    def _check_codebook(self, codebook: Codebook) -> None:
        if not self.grouping.joint:
            raise FormatError("transform has a codebook, and units that hold keys or values alone")
        if len(codebook.predictors) != len(self.units):
            raise FormatError(f"transform has {len(self.units)} units and {len(codebook.predictors)} predictors")
        for unit, basis in zip(self.units, self.bases, strict=True):
            predictor, energies = codebook.predictors[unit.index], codebook.energies[unit.index]
            if predictor.shape[1] != unit.channels or len(energies) != basis.rank:
                raise FormatError(
                    f"transform predictor {unit.index} is {predictor.shape} with {len(energies)} energies, its basis "
                    f"has {basis.rank} coefficients of {unit.channels} channels"
                )

    def _check_array(self, name: str, shape: tuple[int, ...], dtype: type) -> None:
        array = getattr(self, name)
        if array.dtype != dtype or array.shape != shape:
            raise FormatError(f"transform {name} is {array.dtype} {array.shape}, must be {dtype.__name__} {shape}")
        if not bool((np.abs(array) <= LARGEST_PARAMETER).all()):
            raise FormatError(f"transform {name} holds a value beyond {LARGEST_PARAMETER}")

    def _check_inverse(self) -> None:
        try:
            inverse = self.inverse_key_roots
        except np.linalg.LinAlgError as error:
            raise FormatError(f"transform key_roots has no inverse: {error}") from error
        if not bool((inverse.abs() <= LARGEST_PARAMETER).all()):
            raise FormatError("transform key_roots has an inverse out of range")

    @property
    def kind(self) -> TransformKind:
        """Which releases have such parameters."""
        return TransformKind(self.grouping, self.table_reach, any(basis.in_stages for basis in self.bases))

    @cached_property
    def units(self) -> tuple[Unit, ...]:
        """Units of the model."""
        return units_of(self.shape, self.grouping)

    @cached_property
    def inverse_key_roots(self) -> torch.Tensor:
        """Inverse of ``key_roots``."""
        # what float32 cannot hold becomes infinite, which _check_inverse refuses
        with np.errstate(over="ignore"):
            return torch.from_numpy(np.linalg.inv(self.key_roots.astype(np.float64)).astype(np.float32))

    @cached_property
    def search(self) -> CodebookSearch:
        """Finds entries of the codebook."""
        assert self.codebook is not None
        return CodebookSearch(self.codebook, self.bases)

    def on(self, device: torch.device) -> DecodeParameters:
        """What decoding on a device needs, made on first use and kept."""
        if device not in self._parameters:
            self._parameters[device] = decode_parameters(self, device)
        return self._parameters[device]

    def table_ranks(self, place: int) -> npt.NDArray[np.int32]:
        """Coefficients of each unit for which a step of the grid has tables."""
        ranks: npt.NDArray[np.int32] = self.ranks[max(0, place - self.table_reach)]
        return ranks

    def spans(self, unit: Unit, group: TokenGroup) -> list[Span]:
        """Streams that hold a unit's coefficients of a group of tokens."""
        size = stream_coefficients(group.num_tokens)
        key = (unit.index, group.place, group.table_place, size)
        if key not in self._slices:
            rank = int(self.ranks[group.place, unit.index])
            edges = [(first, min(first + size, rank)) for first in range(0, rank, size)]
            self._slices[key] = [Span(a, b, self.tables_of(unit, group.table_place, a, b)) for a, b in edges]
        return self._slices[key]

    def tables_of(self, unit: Unit, place: int, first: int, end: int) -> FrequencyTables:
        """Tables of a unit's coefficients ``first..end-1`` at a step of the grid."""
        table, before = self.tables[place], int(self.table_ranks(place)[: unit.index].sum())
        runs = table.frequencies[table.starts[before + first] : table.starts[before + end]]
        own = slice(before + first, before + end)
        return FrequencyTables(table.first[:, own], table.count[:, own], runs)
