"""A profile: what the codecs know of one model beforehand, identified by a hash over its content."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
from safetensors.numpy import save

from cachegen.chunking import MODEL_FINGERPRINT_BYTES
from cachegen.codecs.base import CodecTables
from cachegen.codecs.token_references import MODES, TABLE_OFFSETS
from cachegen.codecs.transform import SINK_TOKENS
from cachegen.codecs.transform_tables import (
    MAX_STREAM_COEFFICIENTS,
    STREAM_COEFFICIENTS,
    TransformKind,
    TransformTables,
)
from cachegen.codecs.units import APART, JOINT
from cachegen.errors import FormatError, InvalidInputError, VersionError
from cachegen.kernels.anchor import ANCHOR_LARGEST, GROUP_TOKENS, LEVEL_MULTIPLIERS, THIRD_BINS
from cachegen.kernels.prediction import PREDICTED_LARGEST
from cachegen.kernels.tables import PROB_BITS
from cachegen.kernels.uniform import GRID_STEPS, LEVEL_PLACES, SYMBOL_LARGEST, TOKEN_REACH
from cachegen.kv import KVShape
from cachegen.profile_arrays import named_arrays, named_tables, read_tables, transform_header
from cachegen.strict_json import parse_object, shown
from cachegen.whole_file import write_whole

# What each schema has of the transform. A profile that has what an earlier one could say is the same file as then, with
# the same hash; so is one that has no transform.
PROFILE_SCHEMA, SCHEMA_REFERENCES, SCHEMA_JOINT, SCHEMA_APART = 6, 5, 4, 3
_TRANSFORMS = {
    PROFILE_SCHEMA: TransformKind(JOINT, TABLE_OFFSETS[-1], in_stages=True),
    SCHEMA_REFERENCES: TransformKind(JOINT, TABLE_OFFSETS[-1], in_stages=False),
    SCHEMA_JOINT: TransformKind(JOINT, 0, in_stages=False),
    SCHEMA_APART: TransformKind(APART, 0, in_stages=False),
}
_METADATA_KEY = "cachegen_profile"
# What reading a file of other content raises: nesting without end, and element types that NumPy lacks, included.
_NOT_A_PROFILE = (
    FormatError,
    safetensors.SafetensorError,
    AttributeError,
    KeyError,
    RecursionError,
    TypeError,
    ValueError,
)
# All that a symbol means beside the tables; a release with other constants makes other hashes.
_CONSTANTS = {
    "group_tokens": GROUP_TOKENS,
    "anchor_largest": ANCHOR_LARGEST,
    "third_bins": THIRD_BINS,
    "level_multipliers": LEVEL_MULTIPLIERS,
    "prob_bits": PROB_BITS,
    "transform_steps": GRID_STEPS,
    "transform_levels": LEVEL_PLACES,
    "transform_token_reach": TOKEN_REACH,
    "transform_symbol_largest": SYMBOL_LARGEST,
    "transform_sink_tokens": SINK_TOKENS,
    "transform_stream_coefficients": (STREAM_COEFFICIENTS, MAX_STREAM_COEFFICIENTS),
}
_REFERENCE_CONSTANTS = {
    "transform_modes": MODES,
    "transform_table_offsets": TABLE_OFFSETS,
    "transform_predicted_largest": PREDICTED_LARGEST,
}


@dataclass(frozen=True)
class Profile:
    """Offline tables and parameters of one model.

    Parameters
    ----------
    shape : KVShape
        The model's KV shape; rows and channels of every table are its.
    model_fingerprint : bytes
        16 bytes that name the model.
    tables : CodecTables
        Of every codec that has any.

    Raises
    ------
    InvalidInputError
        The fingerprint has the wrong length.
    FormatError
        The tables do not fit the shape or the number of levels.
    """

    shape: KVShape
    model_fingerprint: bytes
    tables: CodecTables
    hash: bytes = field(init=False)

    def __post_init__(self) -> None:
        if len(self.model_fingerprint) != MODEL_FINGERPRINT_BYTES:
            raise InvalidInputError(
                f"model_fingerprint has {len(self.model_fingerprint)} bytes, must have {MODEL_FINGERPRINT_BYTES}"
            )
        if len(self.tables.deltas) != len(LEVEL_MULTIPLIERS):
            raise FormatError(f"profile has {len(self.tables.deltas)} levels, must have {len(LEVEL_MULTIPLIERS)}")
        for name, table in named_tables(self.tables):
            if table.first.shape != (self.shape.rows, self.shape.channels):
                raise FormatError(f"profile table {name} is {table.first.shape}, its model has {self.shape}")
        transform = self.tables.transform
        if not isinstance(transform, str) and transform.shape != self.shape:
            raise FormatError(f"profile's transform is for {transform.shape}, its model has {self.shape}")
        if not isinstance(transform, str) and transform.kind not in _TRANSFORMS.values():
            stages = "bases in stages" if transform.kind.in_stages else "bases of one block"
            raise FormatError(
                f"a profile has no place for {transform.grouping}, tables {transform.table_reach} away and {stages}"
            )
        object.__setattr__(self, "hash", self._content_hash())

    def _content_hash(self) -> bytes:
        digest = hashlib.sha256(json.dumps(_header(self), sort_keys=True).encode())
        for _, array in named_arrays(self.tables):
            digest.update(str(array.shape).encode())
            digest.update(np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<")).data)
        return digest.digest()


def save_profile(profile: Profile, path: str | Path) -> None:
    """Write a profile as safetensors with JSON metadata; the file appears whole or not at all."""
    metadata = {_METADATA_KEY: json.dumps(_header(profile) | {"hash": profile.hash.hex()}, sort_keys=True)}
    # it writes an array's memory, in whatever order that is
    arrays = {name: np.ascontiguousarray(array) for name, array in named_arrays(profile.tables)}
    write_whole(path, save(arrays, metadata=metadata))


def load_profile(path: str | Path) -> Profile:
    """Read a profile.

    Raises
    ------
    InvalidInputError
        There is no such file.
    VersionError
        A schema that this release cannot read.
    FormatError
        Not a profile, damaged tables, or content that does not hash to what the file says.
    """
    if not Path(path).is_file():
        raise InvalidInputError(f"no profile at {path}")
    try:
        profile, stated = _read_profile(path)
    except VersionError:
        raise
    except _NOT_A_PROFILE as error:
        raise FormatError(f"{path}: not a profile: {error}") from error
    # as text, so that there is one way to write it
    if profile.hash.hex() != stated:
        raise FormatError(f"{path}: content hashes to {profile.hash.hex()}, file says {shown(stated)}")
    return profile


def _read_profile(path: str | Path) -> tuple[Profile, object]:
    """Profile and the hash that the file states."""
    with safetensors.safe_open(str(path), framework="numpy") as file:
        header = parse_object((file.metadata() or {})[_METADATA_KEY])
        if header["schema"] not in _TRANSFORMS:
            raise VersionError(
                f"{path}: profile schema {header['schema']}, this release reads {SCHEMA_APART} to {PROFILE_SCHEMA}"
            )
        if header["constants"] != json.loads(json.dumps(_constants(header["schema"]))):
            raise VersionError(f"{path}: profile made with other codec constants: {header['constants']}")
        shape = KVShape(**header["shape"])
        tables = read_tables(file.get_tensor, shape, header["transform"], _TRANSFORMS[header["schema"]])
        names = set(file.keys())
    profile = Profile(shape, bytes.fromhex(header["model_fingerprint"]), tables)
    _refuse_more(profile, header, names)
    return profile, header["hash"]


def _refuse_more(profile: Profile, header: dict[str, Any], names: set[str]) -> None:
    """Refuse a file that holds what its hash does not cover."""
    if unknown := names - {name for name, _ in named_arrays(profile.tables)}:
        raise FormatError(f"unknown tensor {shown(min(unknown))}")
    # as text: 1 is not true
    if json.dumps(header, sort_keys=True) != json.dumps(_header(profile) | {"hash": header["hash"]}, sort_keys=True):
        raise FormatError(f"its metadata says more than a profile of {profile.shape} needs")


def _constants(schema: int) -> dict[str, object]:
    kind = _TRANSFORMS[schema]
    of_references = _REFERENCE_CONSTANTS if kind.table_reach else {}
    return _CONSTANTS | of_references | {"transform_unit_channels": kind.grouping.unit_channels}


def _header(profile: Profile) -> dict[str, object]:
    shape, transform = profile.shape, profile.tables.transform
    schema = SCHEMA_APART if isinstance(transform, str) else _schema_of(transform)
    return {
        "schema": schema,
        "constants": _constants(schema),
        "model_fingerprint": profile.model_fingerprint.hex(),
        "shape": {
            "num_layers": shape.num_layers,
            "num_kv_heads": shape.num_kv_heads,
            "head_dim": shape.head_dim,
        },
        "transform": transform_header(profile.tables),
    }


def _schema_of(transform: TransformTables) -> int:
    return next(schema for schema, kind in _TRANSFORMS.items() if kind == transform.kind)
