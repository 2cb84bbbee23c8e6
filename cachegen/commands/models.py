"""The model and the profile that a command works with; torch is imported when one is opened."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from cachegen.errors import MismatchError

if TYPE_CHECKING:
    from cachegen.container import ChunkIdentity
    from cachegen.model import LanguageModel
    from cachegen.profile import Profile


def open_model(name_or_path: str | None) -> LanguageModel:
    """Load a model as it serves, the default one where none is named."""
    from cachegen.default_model import default_model_path
    from cachegen.model import load_model

    return load_model(name_or_path or default_model_path())


def open_model_to_measure(name_or_path: str | None, dtype: str | None) -> LanguageModel:
    """Load a model in what ``--dtype`` says, the default one where none is named."""
    import torch

    from cachegen.default_model import default_model_path
    from cachegen.model import load_model, measuring_dtype

    wanted = measuring_dtype() if dtype is None else None if dtype == "auto" else getattr(torch, dtype)
    return load_model(name_or_path or default_model_path(), dtype=wanted)


def as_it_serves(measured: LanguageModel, name_or_path: str | None) -> LanguageModel:
    """Load the same model as it serves, unless it is that already: fingerprints, and so profiles, tell types apart."""
    from cachegen.model import serving_dtype

    return measured if measured.dtype == serving_dtype(measured.device.type) else open_model(name_or_path)


def profile_of_model(
    model: LanguageModel, path: Path | None, on_step: Callable[[int, int], None], *, transform: bool
) -> Profile:
    """Profile of a file, or else the model's in the cache folder, made there if it is missing.

    Raises
    ------
    MismatchError
        The file is another model's.
    """
    from cachegen.calibration import cached_profile
    from cachegen.profile import load_profile

    if path is None:
        return cached_profile(model, on_step, transform=transform)
    profile = load_profile(path)
    if profile.model_fingerprint != model.fingerprint:
        raise MismatchError(
            f"{path}: is the profile of model {profile.model_fingerprint.hex()}; {model.name} is "
            f"{model.fingerprint.hex()}"
        )
    return profile


def profile_of_chunk(identity: ChunkIdentity, path: Path | None) -> Profile | None:
    """Profile of a file, or else the one in the cache folder that a chunk names; None if it is not there."""
    from cachegen.profile import load_profile
    from cachegen.profile_cache import find_profile

    if path is not None:
        return load_profile(path)
    return find_profile(identity.model_fingerprint, identity.profile_hash)
