import json
import random
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
import safetensors
import safetensors.torch
import torch
from checks import IDENTITY, make_chunk, make_profile
from safetensors.numpy import save_file

import cachegen.profile_builder
from cachegen.errors import FormatError, InvalidInputError, MismatchError, NonFiniteError, VersionError
from cachegen.kv import KVShape
from cachegen.profile import Profile, load_profile, save_profile
from cachegen.profile_builder import CALIBRATION_CHUNK_TOKENS, ProfileBuilder

SHAPE = KVShape(3, 2, 5)


def build(*chunks):
    builder = ProfileBuilder(SHAPE, IDENTITY.model_fingerprint)
    for chunk in chunks:
        builder.add(chunk)
    return builder.build()


def same_tables(a, b):
    """Whether two profiles count the same for the ``cachegen`` codec; a transform is fitted in floating point."""
    tables = [[profile.tables.anchors, *profile.tables.deltas] for profile in (a, b)]
    return all(np.array_equal(x.frequencies, y.frequencies) for x, y in zip(*tables, strict=True))


@pytest.fixture
def path(tmp_path):
    target = tmp_path / "model.profile"
    save_profile(make_profile(), target)
    return target


def rewrite(path, edit):
    """Rewrite a profile file after an edit of its metadata and tensors."""
    with safetensors.safe_open(str(path), framework="numpy") as file:
        header = json.loads(file.metadata()["cachegen_profile"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  not a dict
    edit(header, tensors)
    save_file(tensors, str(path), {"cachegen_profile": json.dumps(header)})


def test_counting_takes_four_bytes_for_each_of_256_symbols_in_six_tables():
    shape = KVShape(4, 8, 64)
    make_profile()  # so that the kernels are loaded
    tracemalloc.start()
    try:
        builder = ProfileBuilder(shape, IDENTITY.model_fingerprint, "not fitted")
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert builder is not None
    tables = 6 * 256 * 4 * shape.rows * shape.channels
    assert tables <= taken < 1.01 * tables


def test_more_tokens_than_a_count_can_hold_are_refused(monkeypatch):
    monkeypatch.setattr(cachegen.profile_builder, "LARGEST_COUNT", 100)
    builder = ProfileBuilder(SHAPE, IDENTITY.model_fingerprint)
    builder.add(make_chunk(3, 60, 2, 5))
    with pytest.raises(InvalidInputError, match="120 tokens of calibration are more than 100"):
        builder.add(make_chunk(3, 60, 2, 5))


def test_saved_profile_loads_with_the_same_hash_and_tables(path):
    loaded, made = load_profile(path), make_profile()

    assert (loaded.hash, loaded.shape, loaded.model_fingerprint) == (made.hash, made.shape, made.model_fingerprint)
    assert np.array_equal(loaded.tables.deltas[3].frequencies, made.tables.deltas[3].frequencies)


def test_saving_replaces_the_file_whole_and_leaves_nothing_beside_it(path):
    save_profile(make_profile(tokens=40), path)

    assert load_profile(path).hash == make_profile(tokens=40).hash
    assert [item.name for item in path.parent.iterdir()] == [path.name]


def test_the_order_of_contexts_does_not_matter():
    a, b = make_chunk(seed=1), make_chunk(tokens=31, seed=2)

    assert same_tables(build(a, b), build(b, a))
    assert not same_tables(build(a, b), build(a, a))


def test_long_contexts_are_counted_in_chunks():
    kv = make_chunk(tokens=CALIBRATION_CHUNK_TOKENS + 25)

    pieces = kv.split(CALIBRATION_CHUNK_TOKENS, dim=2)
    assert same_tables(build(kv), build(*pieces))


def test_hash_covers_model_and_tables():
    profile = make_profile()
    other_model = Profile(profile.shape, bytes(16), profile.tables)
    swapped = replace(profile.tables, deltas=tuple(reversed(profile.tables.deltas)))

    assert len({profile.hash, other_model.hash, Profile(profile.shape, bytes(16), swapped).hash}) == 3
    assert len(profile.hash) == 32


def test_calibration_refuses_foreign_shapes_and_non_finite_values():
    builder = ProfileBuilder(SHAPE, IDENTITY.model_fingerprint)
    with pytest.raises(MismatchError, match="num_layers=4"):
        builder.add(make_chunk(layers=4))
    with pytest.raises(NonFiniteError):
        builder.add(torch.full((3, 2, 1, 2, 5), float("nan")))


def test_profile_without_a_delta_is_refused():
    with pytest.raises(InvalidInputError, match="2 tokens or more"):
        build()
    with pytest.raises(InvalidInputError, match="2 tokens or more"):
        build(make_chunk(tokens=1))


def test_tables_that_do_not_fit_the_model_are_refused():
    tables = make_profile().tables
    with pytest.raises(FormatError, match=r"anchors is \(6, 10\)"):
        Profile(KVShape(3, 2, 6), bytes(16), tables)
    with pytest.raises(FormatError, match="4 levels"):
        Profile(SHAPE, bytes(16), replace(tables, deltas=tables.deltas[1:]))
    with pytest.raises(InvalidInputError, match="model_fingerprint has 3 bytes"):
        Profile(SHAPE, b"abc", tables)


def test_missing_file_is_named(tmp_path):
    with pytest.raises(InvalidInputError, match=r"no profile at .*nowhere"):
        load_profile(tmp_path / "nowhere")


@pytest.mark.parametrize("content", [b"", b"not a profile", bytes(100)])
def test_files_that_are_no_profiles_are_refused_by_path(tmp_path, content):
    path = tmp_path / "file"
    path.write_bytes(content)

    with pytest.raises(FormatError, match=f"{path}: not a profile"):
        load_profile(path)


def test_safetensors_of_something_else_are_refused(tmp_path):
    path = tmp_path / "file"
    save_file({"weight": np.zeros(3)}, str(path))

    with pytest.raises(FormatError, match="not a profile: 'cachegen_profile'"):
        load_profile(path)


def turn_without_end(tensors):
    tensors["transform.rotary.frequencies"][0, :2] = np.inf, -np.inf
    tensors["transform.rotary.partners"][0, :2] = 1, 0


@pytest.mark.parametrize(
    "edit",
    [
        lambda header, tensors: header.pop("shape"),
        lambda header, tensors: header["shape"].update(extra=1),
        lambda header, tensors: header["shape"].update(num_layers="3"),
        lambda header, tensors: header["shape"].update(num_layers=-3),
        lambda header, tensors: header.update(model_fingerprint="xy"),
        lambda header, tensors: header.update(model_fingerprint="00"),
        lambda header, tensors: header.update(hash="00" * 32),
        lambda header, tensors: tensors.pop("anchors.first"),
        lambda header, tensors: tensors["deltas.2.frequencies"].__setitem__(0, 4095),
        lambda header, tensors: tensors["deltas.2.frequencies"].__setitem__(1, 0),
        lambda header, tensors: tensors.update({"anchors.count": np.zeros((6, 10), dtype=np.uint8)}),
        lambda header, tensors: tensors.update({"anchors.first": np.zeros((6, 10), dtype=np.int64)}),
        lambda header, tensors: header["transform"].pop("max_tokens"),
        lambda header, tensors: header["transform"].update(max_tokens=-1),
        lambda header, tensors: header["transform"].update(max_tokens="9"),
        lambda header, tensors: tensors.pop("transform.bases.0"),
        lambda header, tensors: tensors["transform.bases.0"].__setitem__((0, 0), 1.5),
        lambda header, tensors: tensors["transform.bases.0"].__setitem__((0, 0), np.nan),
        lambda header, tensors: tensors["transform.means"].__setitem__((0, 0), np.inf),
        lambda header, tensors: tensors["transform.value_scales"].__setitem__(0, 0),
        lambda header, tensors: tensors["transform.value_scales"].__setitem__(0, np.nan),
        lambda header, tensors: tensors["transform.ranks"].__setitem__((0, 0), 0),
        lambda header, tensors: tensors["transform.ranks"].__setitem__((7, 0), 60),
        lambda header, tensors: tensors["transform.key_roots"].__setitem__((0, 0, 0), 1e30),
        lambda header, tensors: tensors["transform.key_roots"].__setitem__(0, 0),
        lambda header, tensors: tensors["transform.rotary.partners"].__setitem__((0, 0), 3),
        lambda header, tensors: tensors.update({"transform.ranks": tensors["transform.ranks"].astype(np.int64)}),
        lambda header, tensors: tensors.update({"transform.ranks": tensors["transform.ranks"].ravel()}),
        lambda header, tensors: tensors.update({"transform.ranks": np.array(1, dtype=np.int32)}),
        # angles and products that are infinite, with partners that agree
        lambda header, tensors: turn_without_end(tensors),
        lambda header, tensors: tensors["transform.value_scales"].__setitem__(1, 1e-42),
        lambda header, tensors: tensors["transform.key_roots"].__setitem__(0, np.eye(5) * 1e-44),
        # what is no number of heads, though it equals one
        lambda header, tensors: header["shape"].update(num_kv_heads=2.0),
        lambda header, tensors: tensors.pop("transform.codebook.own"),
        lambda header, tensors: tensors.pop("transform.codebook.energies.0"),
        lambda header, tensors: tensors["transform.codebook.own"].__setitem__((3, 1), 100),
        lambda header, tensors: tensors["transform.codebook.predictors.0"].__setitem__((0, 0), np.inf),
        lambda header, tensors: tensors["transform.codebook.energies.0"].__setitem__(0, np.nan),
        lambda header, tensors: header["transform"].update(codebook=False),
        lambda header, tensors: header["transform"].update(codebook=1),
        lambda header, tensors: header["transform"].pop("codebook"),
        # what no hash covers
        lambda header, tensors: header.update(comment="hello"),
        lambda header, tensors: header["transform"].update(comment="hello"),
        lambda header, tensors: header.update(model_fingerprint=header["model_fingerprint"].upper()),
        lambda header, tensors: tensors.update({"transform.bases.9": np.zeros(3)}),
    ],
)
def test_damaged_content_is_refused(path, edit):
    rewrite(path, edit)

    with pytest.raises(FormatError, match=str(path)):
        load_profile(path)


@pytest.mark.parametrize(
    "edit",
    [
        lambda header, tensors: header.update(schema=1),
        lambda header, tensors: header["constants"].update(group_tokens=20),
    ],
)
def test_other_schemas_and_constants_are_refused_as_versions(path, edit):
    rewrite(path, edit)

    with pytest.raises(VersionError, match=str(path)):
        load_profile(path)


def test_untouched_rewrite_still_loads(path):
    rewrite(path, lambda header, tensors: None)

    assert load_profile(path).hash == make_profile().hash


def test_endless_nesting_is_refused(path):
    save_file({"first": np.zeros(1)}, str(path), {"cachegen_profile": "[" * 100_000})

    with pytest.raises(FormatError, match=str(path)):
        load_profile(path)


def test_element_types_that_numpy_lacks_are_refused(path):
    with safetensors.safe_open(str(path), framework="pt") as file:
        metadata, tensors = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  not a dict
    tensors["anchors.first"] = torch.zeros((6, 10), dtype=torch.float8_e4m3fn)
    safetensors.torch.save_file(tensors, str(path), metadata)

    with pytest.raises(FormatError, match=str(path)):
        load_profile(path)


def test_field_that_stands_twice_is_refused(path):
    with safetensors.safe_open(str(path), framework="numpy") as file:
        text = file.metadata()["cachegen_profile"]
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  not a dict
    save_file(tensors, str(path), {"cachegen_profile": text.replace('{"constants"', '{"schema": 2, "constants"')})

    with pytest.raises(FormatError, match="'schema' stands twice"):
        load_profile(path)


def test_flipped_bits_and_cut_files_are_refused(path):
    data = path.read_bytes()
    metadata_end = 8 + int.from_bytes(data[:8], "little")
    hash_at = data.index(b"hash") + 12
    rng = random.Random(0)
    places = [*range(hash_at, hash_at + 64), *rng.sample(range(metadata_end), 60), *rng.sample(range(len(data)), 60)]
    for at in places:
        for bit in range(8):
            path.write_bytes(data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :])
            with pytest.raises(FormatError, match=str(path)):
                load_profile(path)
    for length in (*range(0, metadata_end, 97), *range(metadata_end, len(data), 997)):
        path.write_bytes(data[:length])
        with pytest.raises(FormatError, match=str(path)):
            load_profile(path)
