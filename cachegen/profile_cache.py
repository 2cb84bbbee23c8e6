"""Where profiles are kept between runs, and which of them a chunk needs."""

from pathlib import Path

from cachegen.cache_dir import cache_dir
from cachegen.errors import FormatError
from cachegen.profile import PROFILE_SCHEMA, SCHEMA_APART, SCHEMA_JOINT, SCHEMA_REFERENCES, Profile, load_profile


def profile_folder() -> Path:
    """Folder of the cache that holds profiles."""
    return cache_dir() / "profiles"


def profile_path(model_fingerprint: bytes, *, transform: bool) -> Path:
    """File of a model's profile, with the ``transform`` codec or without; it need not be there."""
    return _path(model_fingerprint, f"{PROFILE_SCHEMA}-transform" if transform else f"{SCHEMA_APART}")


def _path(model_fingerprint: bytes, kind: str) -> Path:
    return profile_folder() / f"{model_fingerprint.hex()}-{kind}.safetensors"


def find_profile(model_fingerprint: bytes, profile_hash: bytes) -> Profile | None:
    """The profile of this hash in the cache folder, None where it is not or is damaged."""
    paths = [profile_path(model_fingerprint, transform=transform) for transform in (False, True)]
    # those of earlier releases, whose chunks still decode
    earlier = [
        _path(model_fingerprint, f"{schema}-transform") for schema in (SCHEMA_REFERENCES, SCHEMA_JOINT, SCHEMA_APART)
    ]
    for path in (*paths, *earlier):
        if path.is_file():
            try:
                profile = load_profile(path)
            except FormatError:
                continue
            if profile.hash == profile_hash:
                return profile
    return None
