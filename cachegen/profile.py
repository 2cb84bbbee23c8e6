"""A profile: the offline frequency tables of one model, identified by a hash over their content."""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import safetensors
import torch
from safetensors.numpy import save

from cachegen.chunking import MODEL_FINGERPRINT_BYTES
from cachegen.codecs.base import CodecTables
from cachegen.codecs.cachegen import as_rows
from cachegen.codecs.frequencies import build_tables
from cachegen.errors import FormatError, InvalidInputError, MismatchError, VersionError
from cachegen.kernels import get_backend
from cachegen.kernels.anchor import ANCHOR_LARGEST, GROUP_TOKENS, LEVEL_MULTIPLIERS, THIRD_BINS
from cachegen.kernels.tables import ALPHABET, PROB_BITS, FrequencyTables
from cachegen.kv import KVShape, check_kv

PROFILE_SCHEMA = 1
# A context is counted in pieces of this many tokens, as it would be cut in chunks: sigma is each chunk's own.
CALIBRATION_CHUNK_TOKENS = 510
_METADATA_KEY = "cachegen_profile"
_PARTS = ("first", "count", "frequencies")
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
}


@dataclass(frozen=True)
class Profile:
    """Offline tables of one model.

    Parameters
    ----------
    shape : KVShape
        The model's KV shape; rows and channels of every table are its.
    model_fingerprint : bytes
        16 bytes that name the model.
    tables : CodecTables
        Anchors, and deltas of each level.

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
        for name, table in _named_tables(self.tables):
            if table.first.shape != (self.shape.rows, self.shape.channels):
                raise FormatError(f"profile table {name} is {table.first.shape}, its model has {self.shape}")
        object.__setattr__(self, "hash", self._content_hash())

    def _content_hash(self) -> bytes:
        digest = hashlib.sha256(json.dumps(_header(self), sort_keys=True).encode())
        for _, array in _named_arrays(self.tables):
            digest.update(str(array.shape).encode())
            digest.update(array.astype(array.dtype.newbyteorder("<")).tobytes())
        return digest.digest()


class ProfileBuilder:
    """Counts the symbols of calibration contexts and turns them into a profile.

    Parameters
    ----------
    shape : KVShape
        The model's KV shape.
    model_fingerprint : bytes
        16 bytes that name the model.
    """

    def __init__(self, shape: KVShape, model_fingerprint: bytes) -> None:
        self._shape = shape
        self._fingerprint = model_fingerprint
        self._backend = get_backend("numba")
        size = (shape.rows, shape.channels, ALPHABET)
        self._anchors = np.zeros(size, dtype=np.int64)
        self._deltas = [np.zeros(size, dtype=np.int64) for _ in LEVEL_MULTIPLIERS]

    def add(self, kv: torch.Tensor) -> None:
        """Count one context ``(num_layers, 2, num_tokens, num_kv_heads, head_dim)`` of any length.

        Every token is counted as if it were an anchor: which ones are is an accident of the chunk's start,
        and ten times as many samples fill the tables.
        """
        shape = check_kv(kv)
        if shape != self._shape:
            raise MismatchError(f"KV tensor has {shape}, the profile is for {self._shape}")
        for first in range(0, kv.shape[2], CALIBRATION_CHUNK_TOKENS):
            x = as_rows(kv[:, :, first : first + CALIBRATION_CHUNK_TOKENS].detach().cpu())
            self._backend.count(self._backend.quantize_anchors(x)[1], self._anchors)
            for level, counts in enumerate(self._deltas):
                self._backend.count(self._backend.quantize(x, level).deltas, counts)

    def build(self) -> Profile:
        """Profile of all contexts so far; InvalidInputError if they have no deltas to count."""
        if not self._deltas[0].any():
            raise InvalidInputError("a profile needs at least one context of 2 tokens or more")
        tables = CodecTables(build_tables(self._anchors), tuple(build_tables(counts) for counts in self._deltas))
        return Profile(self._shape, self._fingerprint, tables)


def save_profile(profile: Profile, path: str | Path) -> None:
    """Write a profile as safetensors with JSON metadata; the file appears whole or not at all."""
    metadata = {_METADATA_KEY: json.dumps(_header(profile) | {"hash": profile.hash.hex()}, sort_keys=True)}
    data = save(dict(_named_arrays(profile.tables)), metadata=metadata)
    target = Path(path)
    partial = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
    try:
        with partial.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


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
    if profile.hash != stated:
        raise FormatError(f"{path}: content hashes to {profile.hash.hex()}, file says {stated.hex()}")
    return profile


def _read_profile(path: str | Path) -> tuple[Profile, bytes]:
    """Profile and the hash that the file states."""
    with safetensors.safe_open(str(path), framework="numpy") as file:
        header = json.loads((file.metadata() or {})[_METADATA_KEY])
        if header["schema"] != PROFILE_SCHEMA:
            raise VersionError(f"{path}: profile schema {header['schema']}, this release reads {PROFILE_SCHEMA}")
        if header["constants"] != json.loads(json.dumps(_CONSTANTS)):
            raise VersionError(f"{path}: profile made with other codec constants: {header['constants']}")
        names = ["anchors", *(f"deltas.{level}" for level in range(len(LEVEL_MULTIPLIERS)))]
        sets = [FrequencyTables(*(file.get_tensor(f"{name}.{part}") for part in _PARTS)) for name in names]
    profile = Profile(
        KVShape(**header["shape"]),
        bytes.fromhex(header["model_fingerprint"]),
        CodecTables(sets[0], tuple(sets[1:])),
    )
    return profile, bytes.fromhex(header["hash"])


def _header(profile: Profile) -> dict[str, object]:
    shape = profile.shape
    return {
        "schema": PROFILE_SCHEMA,
        "constants": _CONSTANTS,
        "model_fingerprint": profile.model_fingerprint.hex(),
        "shape": {
            "num_layers": shape.num_layers,
            "num_kv_heads": shape.num_kv_heads,
            "head_dim": shape.head_dim,
        },
    }


def _named_tables(tables: CodecTables) -> Iterator[tuple[str, FrequencyTables]]:
    yield "anchors", tables.anchors
    for level, table in enumerate(tables.deltas):
        yield f"deltas.{level}", table


def _named_arrays(tables: CodecTables) -> Iterator[tuple[str, npt.NDArray[np.generic]]]:
    for name, table in _named_tables(tables):
        for part in _PARTS:
            yield f"{name}.{part}", getattr(table, part)
