"""Which earlier tokens an encoder predicts each from: those that are like it, if that costs less."""

import numpy as np
import pytest
import telling_tokens
import torch
from checks import identity_of
from telling_tokens import context

from cachegen.codecs import reference_search
from cachegen.codecs.coefficient_streams import quantize_coefficients
from cachegen.codecs.equal_harm import forward, project
from cachegen.codecs.reference_search import choose_references
from cachegen.codecs.token_references import MODES, TABLE_OFFSETS, read_references
from cachegen.codecs.token_steps import choose_offsets
from cachegen.codecs.transform import SECTION_REFERENCES
from cachegen.container import unpack
from cachegen.encoding import Encoding
from cachegen.kernels import get_backend
from cachegen.kernels.prediction import PREDICTED_LARGEST
from cachegen.kernels.uniform import GRID_STEPS, LEVEL_PLACES
from cachegen.pipeline import encode_chunk

LEVELS = range(len(LEVEL_PLACES))
FIRST_TOKEN = 1536
TAPS = np.array(MODES) > 0


@pytest.fixture(scope="module")
def with_codebook():
    return telling_tokens.profile_with_codebook()


@pytest.fixture(scope="module")
def profile(with_codebook):
    """References, and no codebook: all is the search's."""
    return telling_tokens.profile_without(with_codebook, references=True)


@pytest.fixture(scope="module")
def without(with_codebook):
    return telling_tokens.profile_without(with_codebook)


def repeating(tokens, noise=0.02, seed=5):
    """Tokens of which the second half is the first again, but for noise."""
    half = context(tokens // 2, seed)[0]
    again = half + noise * torch.randn(half.shape, generator=torch.Generator().manual_seed(seed))
    return torch.cat([half, again], dim=2)


def unlike(tokens):
    """Tokens that are as the profile expects them, and none like another more than by chance."""
    kv = context(tokens, seed=3)[0]
    means = kv.mean(dim=2, keepdim=True)
    mixture = torch.randn((tokens, tokens), generator=torch.Generator().manual_seed(1)) / tokens**0.5
    return means + torch.einsum("st,lktnd->lksnd", mixture, kv - means)


def encode(kv, profile, level=3, tokens_behind=None):
    identity = identity_of(profile, first_token=FIRST_TOKEN)
    return encode_chunk(kv, Encoding("transform", level), identity, profile, tokens_behind)


def references_of(data, tokens, level=3, tokens_behind=None):
    places = LEVEL_PLACES[level] + choose_offsets(tokens, tokens_behind)
    return read_references(unpack(data).sections[SECTION_REFERENCES], tokens, 1, places, len(GRID_STEPS))


def symbols_of(kv, profile, places):
    transform = profile.tables.transform
    x = forward(kv, transform, FIRST_TOKEN + np.arange(kv.shape[2]))
    return [
        quantize_coefficients(
            project(x, transform, unit, np.arange(len(places)), places).numpy(),
            transform,
            unit,
            places,
            get_backend("numba"),
        )
        for unit in transform.units
    ]


def check_sound(references):
    own = np.arange(len(references.first))
    for tap, reference in enumerate((references.first, references.second)):
        used = TAPS[references.modes, tap].any(axis=0)
        assert (reference[used] < own[used]).all()
        # and names nothing that it does not use
        assert (reference[~used] == own[~used]).all()


@pytest.mark.parametrize("level", LEVELS)
def test_the_second_half_of_a_chunk_refers_to_the_first_which_it_repeats(profile, without, level):
    kv = repeating(200)
    data, alone = encode(kv, profile, level), encode(kv, without, level)
    references = references_of(data, 200, level)
    referring = references.modes[0, 100:] > 0

    check_sound(references)
    assert referring.mean() > 0.9
    at = np.flatnonzero(referring) + 100
    assert (references.first[at] == at - 100).mean() > 0.9
    section = len(unpack(data).sections[SECTION_REFERENCES])
    assert section == 200 * 5
    # tables are for half the energy at least, so that the half that repeats does not come for nothing; and a model of
    # 64 coefficients feels the section more than others
    assert len(data) - section < 0.93 * len(alone)


@pytest.mark.parametrize("tokens_behind", [None, 0, 700])
@pytest.mark.parametrize("level", LEVELS)
def test_a_chunk_without_likeness_grows_by_little_more_than_the_section(profile, without, level, tokens_behind):
    kv = unlike(300)
    data, alone = encode(kv, profile, level, tokens_behind), encode(kv, without, level, tokens_behind)
    section = len(unpack(data).sections[SECTION_REFERENCES])
    check_sound(references_of(data, 300, level, tokens_behind))

    # a section's entry in the header takes 32; bits are estimated from a quarter of the coefficients
    assert len(data) <= 1.02 * len(alone) + section + 32


@pytest.mark.parametrize("level", [0, 3, 7])
@pytest.mark.parametrize("tokens", [1, 2, 3])
def test_few_tokens_have_references_where_there_is_one_before_them(profile, level, tokens):
    kv = context(1, seed=4)[0].expand(-1, -1, tokens, -1, -1)
    references = references_of(encode(kv, profile, level), tokens, level)

    check_sound(references)
    assert references.modes[0, 0] == 0
    # the same token again
    assert (references.modes[0, 1:] > 0).all()
    assert (references.first[1:] < np.arange(1, tokens)).all()


@pytest.mark.parametrize("level", [0, 7])
@pytest.mark.parametrize("value", [0.0, 0.1])
def test_tokens_that_are_all_the_same_are_chosen_for_without_a_warning(profile, level, value):
    kv = torch.full(context(40, seed=4)[0].shape, value)
    check_sound(references_of(encode(kv, profile, level), 40, level))


def test_tokens_with_symbols_beyond_the_largest_neither_refer_nor_are_referred_to(profile):
    transform = profile.tables.transform
    places = np.full(9, LEVEL_PLACES[3])
    (symbols,) = symbols_of(context(1, seed=4)[0].expand(-1, -1, 9, -1, -1), profile, places)
    symbols = symbols.copy()
    symbols[0, 2], symbols[0, 3] = PREDICTED_LARGEST, PREDICTED_LARGEST + 1
    symbols[1, 4] = -PREDICTED_LARGEST - 1
    references = choose_references([symbols], transform, places)

    check_sound(references)
    assert (references.modes[0, [3, 4]] == 0).all()
    for tap, reference in enumerate((references.first, references.second)):
        used = TAPS[references.modes[0], tap]
        assert not set(reference[used].tolist()) & {3, 4}
    assert (references.modes[0, 5:] > 0).all()


@pytest.mark.parametrize("tokens", [900, 1400])
def test_tokens_further_back_than_is_looked_are_not_referred_to(profile, tokens, monkeypatch):
    monkeypatch.setattr(reference_search, "_BLOCK_TOKENS", 64)
    monkeypatch.setattr(reference_search, "_LOOK_BACK", 256)
    near, far = repeating(tokens), repeating(tokens)
    kv = torch.cat([near[:, :, : tokens // 2][:, :, :100].repeat(1, 1, 2, 1, 1), far], dim=2)
    count = kv.shape[2]
    references = references_of(encode(kv, profile), count)

    check_sound(references)
    for reference in (references.first, references.second):
        back = np.arange(count) - reference
        assert back.max() < 256 + 64
    # the first hundred again
    assert (references.first[100:200] == np.arange(100)).mean() > 0.9


def test_blocks_of_tokens_change_nothing_where_all_are_looked_at(profile, monkeypatch):
    kv = repeating(300)
    expected = references_of(encode(kv, profile), 300)
    monkeypatch.setattr(reference_search, "_BLOCK_TOKENS", 7)
    found = references_of(encode(kv, profile), 300)

    same = (expected.first == found.first) & (expected.modes[0] == found.modes[0])
    # products of other sizes round otherwise
    assert same.mean() > 0.98


@pytest.mark.parametrize("tokens_behind", [None, 0])
@pytest.mark.parametrize("level", [0, 3, 7])
def test_the_number_of_threads_changes_no_bytes(with_codebook, profile, level, tokens_behind):
    kv = repeating(700)
    threads = torch.get_num_threads()
    try:
        for used in (with_codebook, profile):
            found = []
            for count in (1, 2):
                torch.set_num_threads(count)
                found.append(encode(kv, used, level, tokens_behind))
            assert found[0] == found[1]
    finally:
        torch.set_num_threads(threads)


def test_tables_that_few_tokens_would_have_are_not_taken_for_them(profile):
    """A stream of one token costs more bytes than other tables save."""
    kv = context(200, seed=3)[0].clone()
    kv[:, :, 77] *= 1.5
    references = references_of(encode(kv, profile), 200)

    counts = np.bincount(references.table_offsets[0] - TABLE_OFFSETS[0], minlength=3)
    assert counts[counts > 0].min() >= 8


@pytest.mark.parametrize("tokens", [1, 2, 5])
def test_so_few_tokens_have_one_stream(profile, tokens):
    references = references_of(encode(context(tokens, seed=3)[0], profile), tokens)

    assert len(set(references.table_offsets[0].tolist())) == 1


@pytest.mark.parametrize(("level", "outside"), [(0, None), (7, TABLE_OFFSETS[-1])])
def test_tables_beyond_the_grid_are_never_chosen(profile, level, outside):
    """The coarsest tokens of the coarsest level have the last step of the grid."""
    kv = context(64, seed=3)[0] * 1.7
    references = references_of(encode(kv, profile, level, tokens_behind=10**6), 64, level, 10**6)

    assert outside is None or outside not in references.table_offsets
