"""Profiles whose units hold keys and values, or either: what a file has a place for, and where the cache keeps it."""

from dataclasses import replace

import pytest
from checks import IDENTITY, make_chunk, make_features, make_tokens

from cachegen.cache_dir import cache_dir
from cachegen.codecs.rotary import no_rotary
from cachegen.codecs.units import APART, JOINT, Grouping
from cachegen.errors import FormatError
from cachegen.kv import KVShape
from cachegen.profile import load_profile, save_profile
from cachegen.profile_builder import ProfileBuilder
from cachegen.profile_cache import find_profile, profile_path
from cachegen.transform_fit import fit_transform
from cachegen.transform_moments import TransformMoments

SHAPE = KVShape(3, 2, 5)


def transform_of(grouping, features=None):
    moments = TransformMoments(SHAPE, no_rotary(3, 5), grouping, features)
    moments.add(make_chunk(tokens=200), 0, make_tokens(200))
    return fit_transform(moments)


def profile_with(transform):
    builder = ProfileBuilder(SHAPE, IDENTITY.model_fingerprint)
    builder.add(make_chunk(tokens=200))
    profile = builder.build()
    return replace(profile, tables=replace(profile.tables, transform=transform))


@pytest.mark.parametrize(("grouping", "schema"), [(JOINT, 4), (APART, 3)])
def test_either_grouping_has_its_schema_and_comes_back_with_its_hash(tmp_path, grouping, schema):
    profile = profile_with(transform_of(grouping))
    save_profile(profile, tmp_path / "p")

    assert f'\\"schema\\": {schema}'.encode() in (tmp_path / "p").read_bytes()
    loaded = load_profile(tmp_path / "p")
    assert loaded.hash == profile.hash
    assert loaded.tables.transform.grouping == grouping


@pytest.mark.parametrize("grouping", [Grouping(20, joint=True), Grouping(20, joint=False)])
def test_a_grouping_that_files_have_no_place_for_makes_no_profile(grouping):
    with pytest.raises(FormatError, match="no place for Grouping"):
        profile_with(transform_of(grouping))


def test_units_apart_have_no_codebook():
    apart, joint = transform_of(APART), transform_of(JOINT, make_features())
    with pytest.raises(FormatError, match="units that hold keys or values alone"):
        replace(apart, codebook=joint.codebook)


def test_a_profile_of_the_release_before_is_found_for_its_chunks(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    fingerprint = IDENTITY.model_fingerprint
    old, new = profile_with(transform_of(APART)), profile_with(transform_of(JOINT))
    before = cache_dir() / "profiles" / f"{fingerprint.hex()}-3-transform.safetensors"
    for profile, path in ((old, before), (new, profile_path(fingerprint, transform=True))):
        path.parent.mkdir(parents=True, exist_ok=True)
        save_profile(profile, path)

    assert profile_path(fingerprint, transform=True) != before
    for profile in (old, new):
        assert find_profile(fingerprint, profile.hash).hash == profile.hash
    assert find_profile(fingerprint, bytes(32)) is None
