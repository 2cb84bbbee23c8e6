"""The codebook by itself: features of tokens, what is written, and what is refused."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from checks import make_profile

from cachegen.codecs.codebook import Codebook, preceding
from cachegen.errors import FormatError

RANKS, CHANNELS = (7, 5), 10


def codebook_of(entries=40, own=6, previous=4, energies=(1.0, 1.0)):
    """Random vectors, and predictors of two units."""
    rng = np.random.default_rng(0)
    return Codebook(
        rng.integers(-127, 128, (entries, own), dtype=np.int8),
        rng.integers(-127, 128, (entries, previous), dtype=np.int8),
        tuple(rng.standard_normal((own + previous, CHANNELS)).astype(np.float16) for _ in RANKS),
        tuple(np.full(rank, energy, np.float32) for rank, energy in zip(RANKS, energies, strict=True)),
    )


def test_features_are_a_tokens_own_and_those_of_the_one_before_and_none_before_the_first():
    codebook = codebook_of()
    entries = np.array([7, 3, 39, 3])
    tables = codebook.features_on(torch.device("cpu"))
    features = tables.of(torch.from_numpy(entries), torch.from_numpy(preceding(entries))).numpy()

    assert (features.dtype, features.shape, codebook.num_features) == (np.float32, (4, 10), 10)
    assert np.array_equal(features[:, :6], codebook.own[[7, 3, 39, 3]])
    assert np.array_equal(features[1:, 6:], codebook.previous[[7, 3, 39]])
    assert not features[0, 6:].any()


@pytest.mark.parametrize(("entries", "size"), [(1, 2), (1 << 16, 2), ((1 << 16) + 1, 4)])
def test_entries_take_two_bytes_and_four_where_two_are_too_few(entries, size):
    codebook = codebook_of(entries, own=1, previous=1)
    wanted = np.array([entries - 1, 0, entries // 2])
    body = codebook.write_entries(wanted)

    assert body == b"".join(int(entry).to_bytes(size, "little") for entry in wanted)
    assert codebook.read_entries(memoryview(body), 3).tolist() == wanted.tolist()


@pytest.mark.parametrize(("entries", "entry", "form"), [(40, 40, "<u2"), (40, 65_535, "<u2"), (70_000, 70_000, "<u4")])
def test_an_entry_that_there_is_none_of_is_refused_by_its_token(entries, entry, form):
    codebook = codebook_of(entries, own=1, previous=1)
    body = np.array([0, 39, entry], dtype=form).tobytes()
    with pytest.raises(FormatError, match=f"token 2 has entry {entry} of {entries}"):
        codebook.read_entries(memoryview(body), 3)


@pytest.mark.parametrize("length", [0, 5, 7, 12])
def test_bodies_of_another_length_are_refused(length):
    with pytest.raises(FormatError, match=f"{length} bytes for 3 tokens of 2 bytes"):
        codebook_of().read_entries(memoryview(bytes(length)), 3)


def with_value(array, value):
    changed = array.copy()
    changed.flat[-1] = value
    return changed


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("own", lambda own: own.astype(np.int16), "codebook.own is int16"),
        ("own", lambda own: own[0], r"codebook.own is int8 \(6,\)"),
        ("own", lambda own: own[:0], r"codebook.own is int8 \(0, 6\)"),
        ("own", lambda own: own[:-1], r"codebook.previous is int8 \(40, 4\)"),
        ("previous", lambda previous: previous.astype(np.uint8), "codebook.previous is uint8"),
        ("predictors", lambda units: units[:1], "1 units and 2 energies"),
        ("predictors", lambda units: (units[0], units[1].astype(np.float32)), "predictor 1 is float32"),
        ("predictors", lambda units: (units[0][:-1], units[1]), r"predictor 0 is float16 \(9, 10\)"),
        ("predictors", lambda units: (units[0][0], units[1]), "predictor 0 is"),
        ("predictors", lambda units: (units[0], with_value(units[1], np.nan)), "predictor 1 holds"),
        ("predictors", lambda units: (units[0], with_value(units[1], -np.inf)), "predictor 1 holds"),
        ("energies", lambda units: (units[0], units[1].astype(np.float64)), "energies 1 are float64"),
        ("energies", lambda units: (units[0][None], units[1]), "energies 0 are"),
        ("energies", lambda units: (with_value(units[0], -1e-3), units[1]), "energies 0 are .* or out of range"),
        ("energies", lambda units: (with_value(units[0], np.nan), units[1]), "energies 0 are"),
        ("energies", lambda units: (units[0], with_value(units[1], 2.0**41)), "energies 1 are"),
        ("own", lambda own: own[:, :0], r"\(40, 0\) own and \(40, 4\) previous"),
        ("previous", lambda previous: np.tile(previous, (1, 1024)), r"\(40, 6\) own and \(40, 4096\) previous"),
    ],
)
def test_arrays_that_do_not_fit_together_are_refused_by_name(name, change, message):
    codebook = codebook_of()
    with pytest.raises(FormatError, match=message):
        replace(codebook, **{name: change(getattr(codebook, name))})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: replace(c, predictors=c.predictors * 2, energies=c.energies * 2), "1 units and 2 predictors"),
        (lambda c: replace(c, predictors=(c.predictors[0][:, 1:],)), r"predictor 0 is \(10, 59\)"),
        (lambda c: replace(c, energies=(c.energies[0][:-1],)), r"predictor 0 is .* with \d+ energies, its basis"),
    ],
)
def test_a_codebook_for_other_units_is_refused(change, message):
    transform = make_profile().tables.transform
    with pytest.raises(FormatError, match=message):
        replace(transform, codebook=change(transform.codebook))
