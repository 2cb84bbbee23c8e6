"""Profiles of earlier releases, by units and by how far tables reach: what a file has a place for, and where it is."""

import json
from dataclasses import replace

import numpy as np
import pytest
import safetensors
from checks import IDENTITY, make_chunk, make_features, make_tokens
from safetensors.numpy import load_file, save_file

from cachegen import basis_fit
from cachegen.cache_dir import cache_dir
from cachegen.codecs.rotary import no_rotary
from cachegen.codecs.units import APART, JOINT, Grouping
from cachegen.errors import FormatError, VersionError
from cachegen.kernels.tables import FrequencyTables
from cachegen.kv import KVShape
from cachegen.profile import load_profile, save_profile
from cachegen.profile_builder import ProfileBuilder
from cachegen.profile_cache import find_profile, profile_path
from cachegen.transform_fit import fit_transform
from cachegen.transform_moments import TransformMoments

SHAPE = KVShape(3, 2, 5)


def transform_of(grouping, features=None, *, references=False):
    moments = TransformMoments(SHAPE, no_rotary(3, 5), grouping, features)
    moments.add(make_chunk(tokens=200), 0, make_tokens(200))
    return fit_transform(moments, references=references)


def profile_with(transform):
    builder = ProfileBuilder(SHAPE, IDENTITY.model_fingerprint)
    builder.add(make_chunk(tokens=200))
    profile = builder.build()
    return replace(profile, tables=replace(profile.tables, transform=transform))


@pytest.mark.parametrize(("grouping", "references", "schema"), [(JOINT, True, 5), (JOINT, False, 4), (APART, False, 3)])
def test_each_kind_has_its_schema_and_comes_back_with_its_hash(tmp_path, grouping, references, schema):
    profile = profile_with(transform_of(grouping, references=references))
    save_profile(profile, tmp_path / "p")

    assert f'\\"schema\\": {schema}'.encode() in (tmp_path / "p").read_bytes()
    loaded = load_profile(tmp_path / "p")
    assert loaded.hash == profile.hash
    assert loaded.tables.transform.grouping == grouping
    assert loaded.tables.transform.table_reach == int(references)


def test_only_a_profile_with_references_says_how_they_work(tmp_path):
    for references in (True, False):
        save_profile(profile_with(transform_of(JOINT, references=references)), tmp_path / "p")
        for name in (b"transform_modes", b"transform_table_offsets", b"transform_predicted_largest"):
            assert (name in (tmp_path / "p").read_bytes()) == references


def test_the_same_moments_make_other_tables_and_nothing_else_other_with_references():
    with_them, without = (transform_of(JOINT, make_features(), references=references) for references in (True, False))

    assert (with_them.table_reach, without.table_reach) == (1, 0)
    for name in ("means", "key_roots", "value_scales", "ranks"):
        assert np.array_equal(getattr(with_them, name), getattr(without, name))
    for a, b in zip(with_them.bases, without.bases, strict=True):
        arrays, others = ((*basis.blocks, basis.joint, basis.leads, basis.sources) for basis in (a, b))
        assert all(np.array_equal(*pair) for pair in zip(arrays, others, strict=True))
    for place, (a, b) in enumerate(zip(with_them.tables, without.tables, strict=True)):
        assert a.channels == with_them.ranks[max(0, place - 1)].sum()
        assert b.channels == without.ranks[place].sum()


def test_a_file_of_another_schema_than_its_tables_is_refused(tmp_path):
    """The tables of a step reach as far as the ranks of the step before, or they do not."""
    path = tmp_path / "p"
    for references, other in ((True, 4), (False, 5)):
        save_profile(profile_with(transform_of(JOINT, references=references)), path)
        tensors, header = load_file(path), metadata_of(path)
        constants = metadata_of_schema(tmp_path / "other", other)["constants"]
        save_file(tensors, path, {"cachegen_profile": json.dumps(header | {"schema": other, "constants": constants})})
        with pytest.raises(FormatError, match="transform table "):
            load_profile(path)


def metadata_of(path):
    with safetensors.safe_open(str(path), framework="numpy") as file:
        return json.loads(file.metadata()["cachegen_profile"])


def metadata_of_schema(path, schema):
    save_profile(profile_with(transform_of(JOINT, references=schema == 5)), path)
    return metadata_of(path)


@pytest.mark.parametrize("schema", [2, 7, 5.5, True, None, "5"])
def test_a_schema_that_there_is_not_is_refused_as_a_version(tmp_path, schema):
    path = tmp_path / "p"
    save_profile(profile_with(transform_of(JOINT, references=True)), path)
    packed = json.dumps(metadata_of(path) | {"schema": schema})
    save_file(load_file(path), path, {"cachegen_profile": packed})

    with pytest.raises(VersionError, match="this release reads 3 to 6"):
        load_profile(path)


@pytest.mark.parametrize("schema", [5.0, [5], {"5": 5}])
def test_a_schema_that_is_no_whole_number_is_refused(tmp_path, schema):
    path = tmp_path / "p"
    save_profile(profile_with(transform_of(JOINT, references=True)), path)
    packed = json.dumps(metadata_of(path) | {"schema": schema})
    save_file(load_file(path), path, {"cachegen_profile": packed})

    with pytest.raises((FormatError, VersionError)):
        load_profile(path)


@pytest.mark.parametrize("reach", [2, 14])
def test_a_reach_that_files_have_no_place_for_makes_no_profile(reach):
    transform = transform_of(JOINT)
    # ranks of one number, so that tables fit whatever the reach
    even = np.full_like(transform.ranks, 1)
    bases = tuple(basis.prefix(1) for basis in transform.bases)
    own = slice(0, len(transform.units))
    tables = tuple(
        FrequencyTables(table.first[:, own], table.count[:, own], table.frequencies[: table.starts[own.stop]])
        for table in transform.tables
    )
    transform = replace(transform, ranks=even, bases=bases, tables=tables, table_reach=reach)
    with pytest.raises(FormatError, match=f"no place for .*, tables {reach} away"):
        profile_with(transform)


def test_units_apart_have_no_references():
    with pytest.raises(FormatError, match=r"no place for Grouping.*joint=False.*, tables 1 away"):
        profile_with(transform_of(APART, references=True))


@pytest.mark.parametrize("grouping", [Grouping(20, joint=True), Grouping(20, joint=False)])
def test_a_grouping_that_files_have_no_place_for_makes_no_profile(grouping):
    with pytest.raises(FormatError, match="no place for Grouping"):
        profile_with(transform_of(grouping))


def test_units_apart_have_no_codebook():
    apart, joint = transform_of(APART), transform_of(JOINT, make_features())
    with pytest.raises(FormatError, match="units that hold keys or values alone"):
        replace(apart, codebook=joint.codebook)


def test_profiles_of_earlier_releases_are_found_for_their_chunks(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    fingerprint = IDENTITY.model_fingerprint
    folder = cache_dir() / "profiles"
    with monkeypatch.context() as patch:
        # so that a unit has several blocks
        patch.setattr(basis_fit, "BLOCK_CHANNELS", 20)
        in_stages = transform_of(JOINT, references=True)
    kinds = {
        folder / f"{fingerprint.hex()}-3-transform.safetensors": transform_of(APART),
        folder / f"{fingerprint.hex()}-4-transform.safetensors": transform_of(JOINT),
        folder / f"{fingerprint.hex()}-5-transform.safetensors": transform_of(JOINT, references=True),
        profile_path(fingerprint, transform=True): in_stages,
        profile_path(fingerprint, transform=False): "a refusal",
    }
    assert len(kinds) == 5
    assert profile_path(fingerprint, transform=True) == folder / f"{fingerprint.hex()}-6-transform.safetensors"
    # as every release had it: nothing of it has changed
    assert profile_path(fingerprint, transform=False) == folder / f"{fingerprint.hex()}-3.safetensors"
    folder.mkdir(parents=True)
    profiles = {path: profile_with(transform) for path, transform in kinds.items()}
    for path, profile in profiles.items():
        save_profile(profile, path)

    for profile in profiles.values():
        assert find_profile(fingerprint, profile.hash).hash == profile.hash
    assert find_profile(fingerprint, bytes(32)) is None
    # a damaged one does not stand in the way of the others
    paths = list(profiles)
    paths[3].write_bytes(b"damaged")
    assert find_profile(fingerprint, profiles[paths[3]].hash) is None
    for path in paths[:3] + paths[4:]:
        assert find_profile(fingerprint, profiles[path].hash).hash == profiles[path].hash
