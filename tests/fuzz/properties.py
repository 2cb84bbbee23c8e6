"""What must hold for any bytes at all: the library's own error, or a sound result that both backends agree on."""

import copy
import re
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import seeds
import torch
from checks import same_bits

from cachegen.codecs import CODECS
from cachegen.codecs.base import Codec
from cachegen.container import ChunkIdentity, pack, unpack
from cachegen.encoding import ENCODINGS
from cachegen.errors import CachegenError, FormatError
from cachegen.manifest import pack_manifest, unpack_manifest
from cachegen.pipeline import decode_chunk, encode_chunk
from cachegen.profile import Profile, load_profile

# The reference is slow; a chunk that claims more is decoded by the compiled backend alone.
REFERENCE_ELEMENTS = 1 << 12
_HASH = re.compile(rb'(?<=\\"hash\\": \\")[0-9a-f]{64}')


def reference_twin(codec: Codec) -> Codec:
    """The codec on the NumPy backend; one without a backend is its own twin."""
    twin = copy.copy(codec)
    if hasattr(twin, "_backend_name"):
        twin._backend_name = "reference"
    return twin


REFERENCE_CODECS = {name: reference_twin(codec) for name, codec in CODECS.items()}


def check_container(data: bytes, profile: Profile | None = None) -> None:
    """A container decodes to a finite tensor of its header's layout, or is refused; the same on both backends.

    Without a profile it is that of the seeds which the header names.
    """
    profile = profile or seeds.profile_named_by(data)
    found = outcome(data, profile, CODECS)
    if isinstance(found, torch.Tensor) and found.numel() > REFERENCE_ELEMENTS:
        return
    expected = outcome(data, profile, REFERENCE_CODECS)
    if isinstance(found, torch.Tensor) and isinstance(expected, torch.Tensor):
        assert same_bits(found, expected), "the backends decode to different tensors"
    else:
        assert type(found) is type(expected), f"compiled: {found!r}; reference: {expected!r}"


def outcome(data: bytes, profile: Profile, codecs: Mapping[str, Codec]) -> torch.Tensor | CachegenError:
    """Tensor or refusal of one backend; any other exception passes through, for it is a defect."""
    with patch.dict(CODECS, codecs):
        try:
            kv = decode_chunk(data, profile).kv
        except CachegenError as error:
            return error
    layout = unpack(data).layout
    assert kv.shape == layout.tensor_shape, f"{kv.shape}, header says {layout}"
    assert kv.dtype == layout.dtype.torch, f"{kv.dtype}, header says {layout}"
    assert bool(torch.isfinite(kv).all()), "NaN or Inf"
    return kv


def check_profile(data: bytes) -> None:
    """A profile file is refused, or serves: chunks decode and encode with it soundly or are refused."""
    try:
        profile = load_forged(data)
    except CachegenError:
        return
    which = kind_of(profile)
    identity = ChunkIdentity(profile.model_fingerprint, profile.hash, bytes(32), 0, 0)
    for encoding in ENCODINGS:
        if not CODECS[encoding.codec].uses_tables:
            continue
        stored = unpack(seeds.encode(*seeds.CHUNKS[1], encoding, which=which))
        sections = {key: bytes(body) for key, body in stored.sections.items()}
        check_container(pack(encoding, stored.layout, replace(identity, first_token=2), sections), profile)
        try:
            coded = encode_chunk(seeds.make_kv(11, torch.bfloat16), encoding, identity, profile)
        except CachegenError:
            continue
        assert isinstance(outcome(coded, profile, CODECS), torch.Tensor), f"{encoding}: its own bytes are refused"
        check_container(coded, profile)


def kind_of(profile: Profile) -> int:
    """Which of the seeds has chunks of the same sections."""
    transform = profile.tables.transform
    if isinstance(transform, str):
        return 0
    if transform.kind.in_stages:
        return 3
    return 2 if transform.table_reach else int(transform.codebook is not None)


def load_forged(data: bytes) -> Profile:
    """Load a profile file, with its hash made right where that is all that is wrong, as a forger would."""
    with tempfile.NamedTemporaryFile() as file:
        Path(file.name).write_bytes(data)
        try:
            return load_profile(file.name)
        except FormatError as error:
            right = re.search(r"content hashes to ([0-9a-f]{64})", str(error))
            if right is None:
                raise
        Path(file.name).write_bytes(_HASH.sub(right[1].encode(), data, count=1))
        return load_profile(file.name)


def check_manifest(data: bytes) -> None:
    """A manifest is refused, or says the same after another trip."""
    try:
        manifest = unpack_manifest(data)
    except CachegenError:
        return
    assert unpack_manifest(pack_manifest(manifest)) == manifest
