"""What several files of tests begin with: a tiny model on disk, a stored context, a copy of it to be broken."""

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
from families import save_tiny_model
from stored_context import store_context
from tiny_models import tiny_llama

import cachegen.own_text
from bench.clean_assembly import CleanContext
from cachegen import Profile, calibrate, calibration_texts, load_model, save_profile


@dataclass(frozen=True)
class ModelFiles:
    """Folder of a model, file of its profile, and the profile."""

    folder: Path
    profile_file: Path
    profile: Profile


@pytest.fixture(scope="session")
def model_files(tmp_path_factory):
    """A llama of two layers that reads characters, and a profile with the transform."""
    place = tmp_path_factory.mktemp("tiny")
    folder = save_tiny_model(place / "llama", tiny_llama(layers=2))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cachegen.own_text, "SAMPLE_TOKENS", 16)
        profile = calibrate(load_model(folder), calibration_texts()[:2], transform=True)
    save_profile(profile, place / "profile.safetensors")
    return ModelFiles(folder, place / "profile.safetensors", profile)


@pytest.fixture
def text_file(tmp_path):
    """500 characters, of which the tiny model makes as many tokens."""
    path = tmp_path / "text.txt"
    path.write_text(("The quick brown fox jumps over the lazy dog, again and again. " * 9)[:500], encoding="utf-8")
    return path


@pytest.fixture(autouse=True)
def cache_folder(tmp_path, monkeypatch, request):
    """No test of a command finds or leaves anything in the user's cache folder."""
    if request.module.__name__.startswith("test_command"):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "cachegen"


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """A context in a store on disk."""
    return store_context(tmp_path_factory.mktemp("store"))


@pytest.fixture
def fresh(stored, tmp_path):
    """A copy of the store, to be broken."""
    shutil.copytree(stored.root, tmp_path / "store")
    return tmp_path / "store"


@pytest.fixture(scope="module")
def clean(stored):
    """What loads of the context have to give."""
    return CleanContext(stored.model, stored.profile, stored.cache, stored.manifest)
