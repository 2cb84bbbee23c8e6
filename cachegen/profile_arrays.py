"""The tables of a profile as named arrays, in the order in which they are hashed and stored (docs/format.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from cachegen.codecs.base import CodecTables
from cachegen.codecs.basis import Basis
from cachegen.codecs.codebook import Codebook
from cachegen.codecs.rotary import Rotary
from cachegen.codecs.transform_tables import TransformKind, TransformTables
from cachegen.codecs.units import JOINT
from cachegen.kernels.anchor import LEVEL_MULTIPLIERS
from cachegen.kernels.tables import FrequencyTables
from cachegen.kernels.uniform import GRID_STEPS
from cachegen.kv import KVShape

_PARTS = ("first", "count", "frequencies")
_ROTARY = ("of_layer", "frequencies", "partners")
_BASIS = ("joint", "leads", "sources")
_CODEBOOK = ("own", "previous")
_PARAMETERS = ("means", "key_roots", "value_scales", "ranks")

Array = npt.NDArray[np.generic]


def named_tables(tables: CodecTables) -> Iterator[tuple[str, FrequencyTables]]:
    """The frequency tables of the ``cachegen`` codec."""
    yield "anchors", tables.anchors
    for level, table in enumerate(tables.deltas):
        yield f"deltas.{level}", table


def named_arrays(tables: CodecTables) -> Iterator[tuple[str, Array]]:
    """Every array of a profile."""
    for name, table in named_tables(tables):
        yield from _table_arrays(name, table)
    if not isinstance(tables.transform, str):
        yield from _transform_arrays(tables.transform)


def _table_arrays(name: str, table: FrequencyTables) -> Iterator[tuple[str, Array]]:
    for part in _PARTS:
        yield f"{name}.{part}", getattr(table, part)


def _transform_arrays(transform: TransformTables) -> Iterator[tuple[str, Array]]:
    for name in _ROTARY:
        yield f"transform.rotary.{name}", getattr(transform.rotary, name)
    for name in _PARAMETERS:
        yield f"transform.{name}", getattr(transform, name)
    for index, basis in enumerate(transform.bases):
        yield from _basis_arrays(f"transform.bases.{index}", basis, transform.kind.in_stages)
    for level, table in enumerate(transform.tables):
        yield from _table_arrays(f"transform.tables.{level}", table)
    if transform.codebook is not None:
        yield from _codebook_arrays(transform.codebook)


def _basis_arrays(name: str, basis: Basis, in_stages: bool) -> Iterator[tuple[str, Array]]:
    if not in_stages:
        yield name, basis.blocks[0]
        return
    for part in _BASIS:
        yield f"{name}.{part}", getattr(basis, part)
    for index, rows in enumerate(basis.blocks):
        yield f"{name}.blocks.{index}", rows


def _codebook_arrays(codebook: Codebook) -> Iterator[tuple[str, Array]]:
    for name in _CODEBOOK:
        yield f"transform.codebook.{name}", getattr(codebook, name)
    for index, (predictor, energies) in enumerate(zip(codebook.predictors, codebook.energies, strict=True)):
        yield f"transform.codebook.predictors.{index}", predictor
        yield f"transform.codebook.energies.{index}", energies


def transform_header(tables: CodecTables) -> dict[str, object]:
    """What the profile's metadata says of the ``transform`` codec."""
    if isinstance(tables.transform, str):
        return {"refusal": tables.transform}
    header: dict[str, object] = {"max_tokens": tables.transform.rotary.max_tokens}
    if tables.transform.grouping == JOINT:
        header["codebook"] = tables.transform.codebook is not None
    return header


def read_tables(
    get: Callable[[str], Any], shape: KVShape, transform: dict[str, Any], kind: TransformKind
) -> CodecTables:
    """Inverse of ``named_arrays``.

    Parameters
    ----------
    get : callable
        Array of a name; raises for a name that the file does not have.
    transform : dict
        As ``transform_header`` made it.
    kind : TransformKind
        Of the file's schema.
    """
    deltas = tuple(_read_table(get, f"deltas.{level}") for level in range(len(LEVEL_MULTIPLIERS)))
    parameters = _read_transform(get, shape, transform, kind)
    return CodecTables(_read_table(get, "anchors"), deltas, parameters)


def _read_table(get: Callable[[str], Any], name: str) -> FrequencyTables:
    return FrequencyTables(*(get(f"{name}.{part}") for part in _PARTS))


def _read_transform(
    get: Callable[[str], Any], shape: KVShape, header: dict[str, Any], kind: TransformKind
) -> TransformTables | str:
    if "refusal" in header:
        return str(header["refusal"])
    of_layer, frequencies, partners = (get(f"transform.rotary.{name}") for name in _ROTARY)
    rotary = Rotary(of_layer, frequencies, partners, header["max_tokens"])
    parameters = {name: get(f"transform.{name}") for name in _PARAMETERS}
    # as many as the ranks have columns, not as the shape implies: the file's size bounds the former alone
    names = [f"transform.bases.{index}" for index in range(parameters["ranks"].size // len(GRID_STEPS))]
    halves = 2 if kind.grouping.joint else 1
    bases = tuple(
        _read_basis(get, name, halves) if kind.in_stages else Basis.of_one_block(get(name), halves) for name in names
    )
    tables = tuple(_read_table(get, f"transform.tables.{level}") for level in range(len(GRID_STEPS)))
    codebook = _read_codebook(get, len(bases)) if header.get("codebook") else None
    return TransformTables(
        shape,
        rotary,
        bases=bases,
        tables=tables,
        codebook=codebook,
        grouping=kind.grouping,
        table_reach=kind.table_reach,
        **parameters,
    )


def _read_basis(get: Callable[[str], Any], name: str, halves: int) -> Basis:
    parts = {part: get(f"{name}.{part}") for part in _BASIS}
    blocks = tuple(get(f"{name}.blocks.{index}") for index in range(len(parts["leads"])))
    return Basis(blocks, halves=halves, **parts)


def _read_codebook(get: Callable[[str], Any], units: int) -> Codebook:
    own, previous = (get(f"transform.codebook.{name}") for name in _CODEBOOK)
    predictors = tuple(get(f"transform.codebook.predictors.{index}") for index in range(units))
    return Codebook(own, previous, predictors, tuple(get(f"transform.codebook.energies.{i}") for i in range(units)))
