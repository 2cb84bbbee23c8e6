"""Profiles whose bases have two stages: their file, their chunks beside those of one basis of all channels, damage."""

import re
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from checks import IDENTITY, identity_of, make_chunk, make_features, make_tokens
from safetensors.numpy import load_file
from test_profile import rewrite

from cachegen import basis_fit
from cachegen.codecs import transform
from cachegen.codecs.base import CodecTables
from cachegen.codecs.basis import Basis
from cachegen.codecs.equal_harm import forward
from cachegen.codecs.rotary import no_rotary
from cachegen.codecs.transform_tables import TransformTables
from cachegen.codecs.units import APART, JOINT
from cachegen.encoding import Encoding
from cachegen.errors import FormatError, MismatchError
from cachegen.kernels.tables import FrequencyTables
from cachegen.kernels.uniform import GRID_STEPS, LEVEL_PLACES
from cachegen.kv import KVShape
from cachegen.pipeline import decode_chunk, encode_chunk
from cachegen.profile import Profile, load_profile, save_profile
from cachegen.profile_arrays import named_arrays
from cachegen.profile_builder import ProfileBuilder
from cachegen.transform_fit import fit_transform
from cachegen.transform_moments import TransformMoments

SHAPE = KVShape(3, 2, 5)
TOKENS, CALIBRATION_TOKENS = 600, 400
# two heads with keys and values, of six
BLOCK_CHANNELS = 20
LEVELS = range(len(LEVEL_PLACES))
STAGE_BLOCKS = ("blocks.0", "blocks.1", "blocks.2")


@cache
def data():
    """Tokens whose layers and heads share three factors."""
    rng = torch.Generator().manual_seed(2)
    factors = torch.randn((TOKENS, 3), generator=rng)
    loadings = torch.randn((3, 2, SHAPE.num_kv_heads, SHAPE.head_dim, 3), generator=rng)
    return make_chunk(3, TOKENS, dtype=torch.float32) + 2 * torch.einsum("tf,lkhdf->lkthd", factors, loadings)


@cache
def profile(block_channels=BLOCK_CHANNELS):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(basis_fit, "BLOCK_CHANNELS", block_channels)
        builder = ProfileBuilder(SHAPE, IDENTITY.model_fingerprint, features=make_features())
        builder.add(data()[:, :, :CALIBRATION_TOKENS], make_tokens(CALIBRATION_TOKENS))
        return builder.build()


def dense():
    """The profile that the same tokens make where a block has room for all channels."""
    return profile(60)


@pytest.fixture
def path(tmp_path):
    target = tmp_path / "model.profile"
    save_profile(profile(), target)
    return target


def header_of(path):
    headers = []
    rewrite(path, lambda header, tensors: headers.append(header))
    return headers[0]


def round_trip(used, level, kv):
    coded = encode_chunk(kv, Encoding("transform", level), identity_of(used), used)
    return len(coded), decode_chunk(coded, used).kv


def test_a_file_of_two_stages_has_schema_6_and_comes_back_with_its_hash(path):
    loaded, header = load_profile(path), header_of(path)
    (basis,), (made,) = (transform.transform_of(used.tables).bases for used in (loaded, profile()))

    assert header["schema"] == 6
    assert loaded.hash == profile().hash
    assert [rows.shape[1] for rows in basis.blocks] == [20, 20, 20]
    assert all(np.array_equal(a, b) for a, b in zip(basis.blocks, made.blocks, strict=True))
    assert all(np.array_equal(getattr(basis, name), getattr(made, name)) for name in ("joint", "leads", "sources"))
    assert basis.halves == made.halves == 2


def test_a_file_has_the_arrays_of_both_stages_in_the_order_in_which_they_are_hashed(path):
    names = [name for name, _ in named_arrays(profile().tables) if name.startswith("transform.bases.")]

    assert names == [f"transform.bases.0.{part}" for part in ("joint", "leads", "sources", *STAGE_BLOCKS)]
    assert set(names) == {name for name in load_file(path) if name.startswith("transform.bases.")}


def test_one_block_makes_the_file_of_the_earlier_schema(tmp_path):
    path = tmp_path / "dense"
    save_profile(dense(), path)

    assert header_of(path)["schema"] == 5
    assert [name for name in load_file(path) if name.startswith("transform.bases.")] == ["transform.bases.0"]
    assert load_profile(path).hash == dense().hash != profile().hash


@pytest.mark.parametrize("level", LEVELS)
def test_tokens_of_a_loaded_profile_lose_no_more_than_a_step(path, level):
    kv, loaded = data()[:, :, CALIBRATION_TOKENS:], load_profile(path)
    _, back = round_trip(loaded, level, kv)
    positions = np.arange(kv.shape[2]) + IDENTITY.first_token
    spaces = (forward(x, transform.transform_of(loaded.tables), positions) for x in (kv, back))
    for before, after in zip(*spaces, strict=True):
        error = (before - after).square().mean(dim=1).sqrt()
        # where products are bfloat16's they round relative to the size of the token
        slack = before.abs().amax(dim=1) * 2**-7
        assert bool((error <= 1.2 * GRID_STEPS[LEVEL_PLACES[level]] + slack).all())
        # they are coded, not stored as they are
        assert float((before != after).any(dim=1).float().mean()) > 0.9


@pytest.mark.parametrize("level", LEVELS)
def test_two_stages_err_and_take_as_much_as_one_basis_of_all_channels(level):
    kv = data()[:, :, CALIBRATION_TOKENS:]
    (size, back), (dense_size, dense_back) = round_trip(profile(), level, kv), round_trip(dense(), level, kv)

    assert size < 1.05 * dense_size
    assert float((back - kv).square().mean()) < 1.05 * float((dense_back - kv).square().mean())


@pytest.mark.parametrize("level", [0, 4])
def test_tokens_restored_at_once_are_those_restored_a_few_at_a_time(monkeypatch, level):
    kv, used = data(), profile()
    coded = encode_chunk(kv, Encoding("transform", level), identity_of(used), used)
    few = decode_chunk(coded, used).kv
    # a model of a single unit has room for few tokens at once; those of several units restore as many as here
    monkeypatch.setattr(transform, "MEMORY", 10.0)

    torch.testing.assert_close(decode_chunk(coded, used).kv, few, rtol=0, atol=1e-3)


def test_a_chunk_says_which_of_the_two_profiles_it_needs():
    used = profile()
    coded = encode_chunk(data()[:, :, :30], Encoding("transform", 2), identity_of(used), used)

    with pytest.raises(MismatchError, match="profile hash"):
        decode_chunk(coded, dense())


def basis_arrays(edit):
    """An edit of the arrays of the first basis, by what follows its name."""
    prefix = "transform.bases.0."

    def edit_file(header, tensors):
        arrays = {name.removeprefix(prefix): tensors.pop(name) for name in list(tensors) if name.startswith(prefix)}
        edit(arrays)
        tensors.update({prefix + name: np.ascontiguousarray(array) for name, array in arrays.items()})

    return edit_file


def becomes(name, change):
    return basis_arrays(lambda arrays: arrays.update({name: change(arrays[name])}))


def element(name, value, at=0):
    return basis_arrays(lambda arrays: arrays[name].reshape(-1).__setitem__(at, value))


def drop_a_block(arrays):
    """What of it leads stays behind."""
    del arrays["blocks.2"]
    arrays["leads"] = arrays["leads"][:2]


def drop_the_last_coefficient(arrays):
    source = int(arrays["sources"][-1])
    name = "joint" if source == 0 else f"blocks.{source - 1}"
    arrays["sources"], arrays[name] = arrays["sources"][:-1], arrays[name][:-1]


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (element("leads", -1), "block 0 has -1 leads"),
        (element("leads", 1000), "block 0 has 1000 leads"),
        (basis_arrays(lambda arrays: arrays["leads"].__iadd__([21, -21, 0])), "block 0 has 29 leads"),
        (becomes("leads", lambda leads: leads.astype(np.int64)), "leads are int64"),
        (becomes("leads", lambda leads: leads[:, None]), r"leads are int32 \(3, 1\)"),
        (becomes("leads", lambda leads: leads[:0]), "joint is .*, of 0 leads"),
        (element("sources", 200), "sources occur"),
        (basis_arrays(lambda arrays: arrays["sources"].__imul__(0)), "sources occur"),
        (becomes("sources", lambda sources: sources[:-1]), "sources occur"),
        (becomes("sources", lambda sources: sources.astype(np.int32)), "sources are int32"),
        (becomes("sources", lambda sources: sources[None]), r"sources are uint8 \(1, "),
        (element("joint", np.nan), "joint is not orthonormal"),
        (element("joint", 1.5, at=3), "joint is not orthonormal"),
        (becomes("joint", lambda joint: joint[:-1]), "sources occur"),
        (becomes("joint", lambda joint: joint[:, :-1]), "joint has 30 rows of 29 elements"),
        (becomes("joint", lambda joint: np.append(joint, joint[:, :1], axis=1)), "joint is .* leads"),
        (becomes("joint", lambda joint: joint.astype(np.float32)), "joint is float32"),
        (becomes("joint", lambda joint: joint[0]), "joint is float16"),
        (element("blocks.0", np.nan), "block 0 is not orthonormal"),
        (element("blocks.1", -1.5), "block 1 is not orthonormal"),
        (becomes("blocks.2", lambda rows: rows.astype(np.float64)), "block 2 is float64"),
        (becomes("blocks.2", lambda rows: rows[0]), "block 2 is float16"),
        (becomes("blocks.1", lambda rows: rows[:-1]), "sources occur"),
        (becomes("blocks.1", lambda rows: rows[:, :10]), "block 1 has 20 rows of 10 elements"),
        (becomes("blocks.1", lambda rows: np.tile(rows, 2)), r"blocks of \[20, 40, 20\] channels"),
        (basis_arrays(drop_a_block), "joint is"),
        (basis_arrays(drop_the_last_coefficient), "coefficients, its rank is"),
    ],
)
def test_damaged_stages_are_refused_by_the_basis_and_what_is_wrong_with_it(path, edit, message):
    rewrite(path, edit)

    with pytest.raises(FormatError, match=rf"{path}: .*transform basis 0\b.*({message})"):
        load_profile(path)


@pytest.mark.parametrize("name", ["joint", "leads", "sources", "blocks.0", "blocks.2"])
def test_a_missing_array_is_named(path, name):
    rewrite(path, basis_arrays(lambda arrays: arrays.pop(name)))

    with pytest.raises(FormatError, match=rf"{path}: .*transform\.bases\.0\.{name}"):
        load_profile(path)


@pytest.mark.parametrize(
    "name", ["transform.bases.0", "transform.bases.0.blocks.3", "transform.bases.1.joint", "transform.bases.0.lead"]
)
def test_an_array_that_no_hash_covers_is_refused(path, name):
    rewrite(path, lambda header, tensors: tensors.update({name: np.zeros((2, 2), dtype=np.float16)}))

    with pytest.raises(FormatError, match=rf"{path}: .*unknown tensor '{name}'"):
        load_profile(path)


def lead_another(arrays):
    """A lead more of a block and one less of another, whose numbers of other rows change with it."""
    arrays["leads"] += np.array([1, -1, 0], dtype=np.int32)
    arrays["sources"][np.flatnonzero(arrays["sources"] == 1)[-1]] = 2


@pytest.mark.parametrize(
    "edit",
    [
        basis_arrays(lambda arrays: arrays["joint"].__imul__(-1)),
        basis_arrays(lambda arrays: arrays["blocks.0"].__imul__(-1)),
        basis_arrays(lambda arrays: arrays["blocks.2"].__imul__(-1)),
        becomes("sources", lambda sources: sources[::-1]),
        basis_arrays(lead_another),
    ],
)
def test_the_hash_covers_both_stages(path, edit):
    rewrite(path, edit)

    with pytest.raises(FormatError, match=f"{path}: content hashes to"):
        load_profile(path)


@pytest.mark.parametrize(("grouping", "references"), [(JOINT, False), (APART, False), (APART, True)])
def test_only_what_the_newest_schema_says_has_a_place_in_two_stages(monkeypatch, grouping, references):
    monkeypatch.setattr(basis_fit, "BLOCK_CHANNELS", 10)
    moments = TransformMoments(SHAPE, no_rotary(3, 5), grouping)
    moments.add(data()[:, :, :CALIBRATION_TOKENS], 0)
    fitted = fit_transform(moments, references=references)

    assert all(len(basis.blocks) > 1 for basis in fitted.bases)
    with pytest.raises(FormatError, match=r"a profile has no place for Grouping.* away and bases in stages"):
        replace(profile(), tables=replace(profile().tables, transform=fitted))


def tables_of(rows, channels):
    """Of values that are 0 alone."""
    first, count = (np.full((rows, channels), value, dtype=np.uint8) for value in (127, 1))
    return FrequencyTables(first, count, np.full(rows * channels, 4000, dtype=np.uint16))


def uneven_profile():
    """A unit of 360 heads, whose basis is one block, and one of 361, whose basis has two."""
    shape = KVShape(721, 1, 4)
    no_joint = np.zeros((0, 0), dtype=np.float16)
    blocks = tuple(np.full((rows, width), 2**-6, dtype=np.float16) for rows, width in ((1, 1440), (0, 1448)))
    in_stages = Basis(blocks, np.zeros(2, dtype=np.int32), no_joint, np.ones(1, dtype=np.uint8), 2)
    of_transform = TransformTables(
        shape,
        no_rotary(721, 4),
        np.zeros((2, 721 * 4), dtype=np.float32),
        np.tile(np.eye(4, dtype=np.float32), (721, 1, 1)),
        np.ones(721, dtype=np.float32),
        (Basis.of_one_block(np.full((1, 2880), 2**-6, dtype=np.float16), 2), in_stages),
        np.ones((len(GRID_STEPS), 2), dtype=np.int32),
        tuple(tables_of(1, 2) for _ in GRID_STEPS),
        table_reach=1,
    )
    table = tables_of(shape.rows, shape.channels)
    return Profile(shape, IDENTITY.model_fingerprint, CodecTables(table, (table,) * 5, of_transform))


def test_a_unit_of_one_block_beside_one_of_two_is_kept_as_they_are(tmp_path):
    path, made = tmp_path / "p", uneven_profile()
    save_profile(made, path)
    loaded = load_profile(path)

    assert header_of(path)["schema"] == 6
    assert loaded.hash == made.hash
    assert [len(basis.blocks) for basis in transform.transform_of(loaded.tables).bases] == [1, 2]
    assert {name for name in load_file(path) if name.startswith("transform.bases.0")} == {
        f"transform.bases.0.{part}" for part in ("joint", "leads", "sources", "blocks.0")
    }


@pytest.mark.parametrize(
    "widths",
    [
        # not all channels, and too many
        (1440, 1440),
        (1440, 1456),
        # half a head, and keys of one head with values of the next
        (1442, 1446),
        (1444, 1444),
        (2888, 0),
        (1440, 1448, 0),
    ],
)
def test_blocks_that_are_not_all_the_heads_of_their_unit_are_refused(tmp_path, widths):
    path, prefix = tmp_path / "p", "transform.bases.1."
    save_profile(uneven_profile(), path)

    def edit(header, tensors):
        tensors[prefix + "leads"] = np.zeros(len(widths), dtype=np.int32)
        for index, width in enumerate(widths):
            tensors[f"{prefix}blocks.{index}"] = np.zeros((int(index == 0), width), dtype=np.float16)

    rewrite(path, edit)
    message = re.escape(f"transform basis 1 has blocks of {list(widths)} channels, its unit 2888")
    with pytest.raises(FormatError, match=f"{path}: .*{message}"):
        load_profile(path)


def test_the_damaged_one_of_several_bases_is_named(tmp_path):
    path = tmp_path / "p"
    save_profile(uneven_profile(), path)
    rewrite(path, lambda header, tensors: tensors["transform.bases.1.blocks.0"].__setitem__((0, 0), np.nan))

    with pytest.raises(FormatError, match=f"{path}: .*transform basis 1: block 0 is not orthonormal"):
        load_profile(path)


def in_stages_of_one_block(header, tensors):
    rows = tensors.pop("transform.bases.0")
    parts = {
        "joint": np.zeros((0, 0), dtype=np.float16),
        "leads": np.zeros(1, dtype=np.int32),
        "sources": np.ones(len(rows), dtype=np.uint8),
        "blocks.0": rows,
    }
    tensors.update({f"transform.bases.0.{name}": array for name, array in parts.items()})
    header["schema"] = 6


def test_stages_that_are_one_matrix_are_refused(tmp_path):
    """Their content is an earlier schema's, and has that hash."""
    path = tmp_path / "one-block"
    save_profile(dense(), path)
    rewrite(path, in_stages_of_one_block)

    with pytest.raises(FormatError, match=rf"{path}: .*unknown tensor 'transform\.bases\.0\."):
        load_profile(path)


@pytest.mark.parametrize(("in_stages", "schema", "missing"), [(True, 5, "bases.0"), (False, 6, "bases.0.joint")])
def test_a_file_of_another_schema_than_its_bases_is_refused(tmp_path, in_stages, schema, missing):
    path = tmp_path / "p"
    save_profile(profile() if in_stages else dense(), path)
    rewrite(path, lambda header, tensors: header.update(schema=schema))

    with pytest.raises(FormatError, match=rf"{path}: .*transform\.{missing}\b"):
        load_profile(path)


def test_one_block_that_is_mixed_is_kept_with_its_joint_basis(tmp_path):
    transform = dense().tables.transform
    basis = transform.bases[0]
    mixed = replace(
        basis,
        leads=np.array([basis.rank], np.int32),
        joint=np.eye(basis.rank, dtype=np.float16)[::-1].copy(),
        sources=np.zeros(basis.rank, np.uint8),
    )
    made = replace(dense(), tables=replace(dense().tables, transform=replace(transform, bases=(mixed,))))
    save_profile(made, tmp_path / "p")
    loaded = load_profile(tmp_path / "p")

    assert loaded.hash == made.hash != dense().hash
    assert np.array_equal(loaded.tables.transform.bases[0].joint, mixed.joint)
