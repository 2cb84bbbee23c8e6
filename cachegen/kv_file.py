"""A chunk tensor in a safetensors file, with where it stands in its context."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import safetensors
import torch
from safetensors.torch import save

from cachegen.allocation import memory_for
from cachegen.chunking import KEY_BYTES, MODEL_FINGERPRINT_BYTES, PROFILE_HASH_BYTES
from cachegen.container import ChunkIdentity
from cachegen.errors import FormatError, InvalidInputError, MismatchError
from cachegen.kv import layout_of
from cachegen.profile import Profile
from cachegen.whole_file import write_whole

KV_KEY = "kv"
_KEY_DOMAIN = b"cachegen kv file 1\0"
_NO_MODEL = bytes(MODEL_FINGERPRINT_BYTES)
_NO_PROFILE = bytes(PROFILE_HASH_BYTES)


@dataclass(frozen=True)
class KVFile:
    """What a KV file holds.

    Parameters
    ----------
    kv : torch.Tensor
        ``(num_layers, 2, num_tokens, num_kv_heads, head_dim)``.
    model_fingerprint : bytes or None
        Which model made it, None where the file does not say.
    chunk_index, first_token : int
        Place of the chunk in its context; 0 where the file does not say.
    """

    kv: torch.Tensor
    model_fingerprint: bytes | None
    chunk_index: int
    first_token: int

    def identity(self, profile: Profile | None) -> ChunkIdentity:
        """Identity under which the tensor is encoded.

        The model is the file's or else the profile's; without either, its fingerprint is zeros, as is the profile hash
        without a profile. No tokens are known, so the key hashes the content instead of chaining over tokens: SHA-256
        of ``b"cachegen kv file 1", NUL, model fingerprint, profile hash, dtype and shape as text, elements``.

        Raises
        ------
        MismatchError
            File and profile are of different models.
        """
        fingerprint = self.model_fingerprint
        if profile is not None:
            if fingerprint is not None and fingerprint != profile.model_fingerprint:
                raise MismatchError(
                    f"the KV tensor is of model {fingerprint.hex()}, the profile of {profile.model_fingerprint.hex()}"
                )
            fingerprint = profile.model_fingerprint
        fingerprint = fingerprint or _NO_MODEL
        profile_hash = _NO_PROFILE if profile is None else profile.hash
        digest = hashlib.sha256(_KEY_DOMAIN + fingerprint + profile_hash)
        digest.update(f"{layout_of(self.kv).dtype.name} {tuple(self.kv.shape)} ".encode())
        digest.update(self.kv.contiguous().flatten().view(torch.uint8).numpy().data)
        return ChunkIdentity(fingerprint, profile_hash, digest.digest(), self.chunk_index, self.first_token)


def read_kv_file(path: Path) -> KVFile:
    """Read the tensor under the key ``kv``.

    Raises
    ------
    InvalidInputError
        There is no such file.
    MemoryLimitError
        There is no memory for it.
    FormatError
        Not a safetensors file, no tensor of that name, or metadata that :func:`write_kv_file` does not write.
    """
    if not path.is_file():
        raise InvalidInputError(f"no file at {path}")
    try:
        # the file is mapped, and read when it is encoded
        with memory_for(str(path), path.stat().st_size), safetensors.safe_open(str(path), framework="pt") as file:
            keys, metadata = list(file.keys()), file.metadata() or {}
            kv = file.get_tensor(KV_KEY) if KV_KEY in keys else None
    except safetensors.SafetensorError as error:
        raise FormatError(f"{path}: not a safetensors file: {error}") from error
    if kv is None:
        raise FormatError(f"{path}: no tensor {KV_KEY!r}; it has {', '.join(map(repr, sorted(keys))) or 'none'}")
    try:
        layout_of(kv)
        stated = metadata.get("model_fingerprint")
        fingerprint = None if stated is None else bytes.fromhex(stated)
        index, first_token = (_place(metadata, field) for field in ("chunk_index", "first_token"))
        # refuses lengths and places that no container can hold
        ChunkIdentity(fingerprint or _NO_MODEL, _NO_PROFILE, bytes(KEY_BYTES), index, first_token)
    except (FormatError, ValueError) as error:
        raise FormatError(f"{path}: {error}") from error
    return KVFile(kv, fingerprint, index, first_token)


def write_kv_file(path: Path, kv: torch.Tensor, identity: ChunkIdentity, encoding: str) -> None:
    """Write a decoded chunk so that :func:`read_kv_file` knows its place; the file appears whole or not at all."""
    metadata = {
        "encoding": encoding,
        "model_fingerprint": identity.model_fingerprint.hex(),
        "profile_hash": identity.profile_hash.hex(),
        "chunk_key": identity.chunk_key.hex(),
        "chunk_index": str(identity.chunk_index),
        "first_token": str(identity.first_token),
    }
    with memory_for(f"the bytes of {path}", kv.nbytes):
        data = save({KV_KEY: kv.contiguous()}, metadata=metadata)
    write_whole(path, data)


def _place(metadata: Mapping[str, str], field: str) -> int:
    text = metadata.get(field, "0")
    if not (text.isascii() and text.isdigit()):
        raise FormatError(f"metadata field {field} is {text!r}, not a number")
    return int(text)
