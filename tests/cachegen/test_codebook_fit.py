"""What the codebook is fitted to, and that what it takes off is what it says."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from checks import make_chunk, make_features, make_profile, make_tokens

from cachegen import codebook_fit, transform_moments
from cachegen.codebook_fit import FEATURE_UNIT, CodebookFit
from cachegen.codecs.rotary import no_rotary
from cachegen.codecs.units import APART, JOINT, Grouping
from cachegen.errors import InvalidInputError
from cachegen.kv import KVShape
from cachegen.profile import Profile, load_profile, save_profile
from cachegen.token_moments import TokenFeatures
from cachegen.transform_fit import fit_transform
from cachegen.transform_moments import TransformMoments

SHAPE = KVShape(3, 2, 5)
SKIPPED = 4


def moments_of(features, *contexts, shape=SHAPE, piece=90, grouping=JOINT):
    """Moments of contexts (chunk tensor, tokens), each added piece by piece."""
    moments = TransformMoments(shape, no_rotary(shape.num_layers, shape.head_dim), grouping, features)
    for kv, tokens in contexts:
        for first in range(0, kv.shape[2], piece):
            moments.add(kv[:, :, first : first + piece], first, tokens)
    return moments


def rows_of(features, *contexts):
    """Features and channels of every token but the first ones, in plain NumPy float64."""
    rows, channels = [], []
    for kv, tokens in contexts:
        for at in range(SKIPPED, len(tokens)):
            rows.append(np.concatenate([features.own[tokens[at]], features.previous[tokens[at - 1]]]))
            channels.append(kv[:, :, at].transpose(0, 1).reshape(2, -1).numpy())
    return np.array(rows, dtype=np.float64), np.array(channels, dtype=np.float64).transpose(1, 0, 2)


def following(tokens, features, seed=0):
    """A context in which some of what is known of the tokens shows, on top of other things and far from 0."""
    kv = make_chunk(tokens=len(tokens), dtype=torch.float32, seed=seed) + 5.0
    weights = torch.randn((features.own.shape[1], kv[:, :, 0].numel()), generator=torch.Generator().manual_seed(7))
    shown = (features.own[tokens].float() @ weights).reshape(-1, *kv[:, :, 0].shape).movedim(0, 2)
    kv += shown
    kv[:, :, 1:] += 0.3 * shown[:, :, :-1]
    return kv


@pytest.fixture(scope="module", params=[JOINT, APART, Grouping(20, joint=True)], ids=["one", "apart", "several"])
def fitted(request):
    """Features, two contexts, their moments, weights of every head, and the fit."""
    features = make_features()
    contexts = []
    for seed, length in ((1, 900), (2, 400)):
        tokens = make_tokens(length, seed=seed)
        contexts.append((following(tokens, features, seed), tokens))
    moments = moments_of(features, *contexts, grouping=request.param)
    rng = torch.Generator().manual_seed(3)
    drawn = [torch.randn((unit.channels // 5, 5, 5), generator=rng) / 4 for unit in moments.units]
    weights = [torch.eye(5) + each + each.transpose(-1, -2) for each in drawn]
    return features, contexts, moments, weights, CodebookFit(moments, weights)


def weighted(x, weights):
    """Channels in the space of equal harm, without their mean."""
    x = torch.from_numpy(x - x.mean(axis=0)).reshape(len(x), len(weights), -1)
    return torch.einsum("thd,hde->the", x, weights.double()).flatten(1).numpy()


def test_moments_of_features_and_channels_are_those_of_all_tokens_but_each_contexts_first(fitted):
    features, contexts, moments, _, _ = fitted
    rows, channels = rows_of(features, *contexts)

    assert len(rows) == moments.num_tokens == 1300 - 2 * SKIPPED
    assert moments.tokens.means().numpy() == pytest.approx(rows.mean(axis=0), abs=1e-4)
    assert moments.tokens.covariance().numpy() == pytest.approx(np.cov(rows.T, bias=True), abs=1e-4)
    for unit in moments.units:
        x = unit.of(torch.from_numpy(channels)).numpy()
        expected = (rows - rows.mean(axis=0)).T @ (x - x.mean(axis=0)) / len(rows)
        found = moments.covariance_with_features(unit).numpy()
        assert found == pytest.approx(expected, abs=1e-4 * float(np.abs(x).max()))


def test_sampled_tokens_keep_their_ids(monkeypatch):
    monkeypatch.setattr(transform_moments, "SAMPLE_TOKENS", 50)
    tokens = make_tokens(400)
    kv = torch.tensor(tokens).float().reshape(1, 1, 400, 1, 1).expand(1, 2, 400, 1, 1)
    moments = moments_of(make_features(), (kv, tokens), shape=KVShape(1, 1, 1), piece=37)
    own, previous = moments.sample_ids().tolist()
    values = moments.sample(moments.units[0])[:, 1] + moments.means()[1]

    assert 25 <= len(own) <= 50
    assert values.numpy() == pytest.approx(np.array(own), abs=0.2)
    assert set(zip(previous, own, strict=True)) <= set(pairwise(tokens))


def test_features_of_the_codebook_have_no_mean_no_correlation_and_one_variance(fitted):
    _, contexts, _, _, fit = fitted
    for table, part in ((fit.tables.own, slice(1, None)), (fit.tables.previous, slice(None, -1))):
        seen = [table[tokens[SKIPPED - 1 :]][part] for _, tokens in contexts]
        rows = torch.cat(seen).double().numpy() * FEATURE_UNIT
        # each of 40 tokens' features is rounded to a sixteenth
        assert rows.mean(axis=0) == pytest.approx(np.zeros(rows.shape[1]), abs=0.01)
        assert np.cov(rows.T, bias=True) == pytest.approx(np.eye(rows.shape[1]), abs=0.03)


def test_what_is_left_over_is_what_a_units_covariance_changes_by(fitted):
    features, contexts, moments, weights, fit = fitted
    _, channels = rows_of(features, *contexts)
    stored = [
        torch.cat([fit.tables.own[tokens[SKIPPED:]], fit.tables.previous[tokens[SKIPPED - 1 : -1]]], dim=1)
        for _, tokens in contexts
    ]
    rows = torch.cat(stored).double().numpy()
    for unit in moments.units:
        x = weighted(unit.of(torch.from_numpy(channels)).numpy(), weights[unit.index])
        before = np.cov(x.T, bias=True)
        left = np.cov((x - rows @ fit.predictors[unit.index].double().numpy()).T, bias=True)
        assert np.trace(left) < 0.8 * np.trace(before)
        # features are rounded to a sixteenth
        assert fit.left_over(unit.index).numpy() == pytest.approx(left - before, abs=2e-3 * float(before.max()))


def test_predictions_of_the_sample_are_those_of_its_tokens(fitted):
    _, _, moments, _, fit = fitted
    own, previous = moments.sample_ids()
    rows = torch.cat([fit.tables.own[own], fit.tables.previous[previous]], dim=1).double()

    assert len(rows) == moments.num_tokens
    for unit in moments.units:
        expected = rows @ fit.predictors[unit.index].double()
        torch.testing.assert_close(fit.predicted_sample(unit.index).double(), expected, rtol=1e-4, atol=1e-4)


def test_the_direction_that_says_most_is_kept_where_there_is_room_for_one(monkeypatch):
    monkeypatch.setattr(codebook_fit, "OWN_FEATURES", 1)
    features, tokens = make_features(), make_tokens(2000)
    kv = 0.1 * make_chunk(tokens=2000, dtype=torch.float32)
    # in all of six features, the third alone shows
    kv += features.own[tokens, 2].float().reshape(1, 1, -1, 1, 1)
    fit = CodebookFit(moments_of(features, (kv, tokens)), [torch.eye(5).expand(12, 5, 5)])
    correlations = np.corrcoef(torch.cat([fit.tables.own.float(), features.own.float()], dim=1).T.numpy())[0, 1:]

    assert fit.tables.own.shape == (40, 1)
    assert abs(correlations[2]) > 0.98
    assert np.abs(np.delete(correlations, 2)).max() < 0.5


def test_features_that_repeat_each_other_count_once():
    known, tokens = make_features(), make_tokens(500)
    twice = TokenFeatures(torch.cat([known.own, known.own], dim=1), torch.ones_like(known.previous))
    fit = CodebookFit(moments_of(twice, (make_chunk(tokens=500), tokens)), [torch.eye(5).expand(12, 5, 5)])

    assert fit.tables.own.shape == (40, 6)
    assert all(bool(predictor.isfinite().all()) for predictor in fit.predictors)


def test_the_codebook_has_the_energies_of_what_is_left_and_vectors_of_every_token():
    transform = make_profile().tables.transform

    assert len(transform.codebook.own) == len(transform.codebook.previous) == 40
    for basis, energies in zip(transform.bases, transform.codebook.energies, strict=True):
        assert len(energies) == basis.rank
        assert (np.diff(energies) <= 0).all()


def test_a_profile_with_a_codebook_is_saved_and_loaded_with_all_of_it_and_its_hash_covers_it(tmp_path):
    made = make_profile()
    save_profile(made, tmp_path / "profile")
    loaded = load_profile(tmp_path / "profile")
    before, after = made.tables.transform.codebook, loaded.tables.transform.codebook

    assert loaded.hash == made.hash
    assert np.array_equal(after.own, before.own)
    assert np.array_equal(after.previous, before.previous)
    for name in ("predictors", "energies"):
        for one, other in zip(getattr(after, name), getattr(before, name), strict=True):
            assert np.array_equal(one, other)
    others = [replace(before, own=-before.own), replace(before, previous=-before.previous), None]
    others += [
        replace(before, predictors=(-before.predictors[0],)),
        replace(before, energies=(2 * before.energies[0],)),
    ]
    for codebook in others:
        tables = replace(made.tables, transform=replace(made.tables.transform, codebook=codebook))
        assert Profile(made.shape, made.model_fingerprint, tables).hash != made.hash


@pytest.mark.parametrize("leaning", [10.0, 100.0])
def test_features_that_lean_far_to_one_side_are_fitted_all_the_same(leaning):
    features = make_features()
    leant = TokenFeatures(*((table.float() + leaning).half() for table in (features.own, features.previous)))
    tokens = make_tokens(900, seed=1)
    kv = following(tokens, features)
    fits = []
    for known in (features, leant):
        moments = moments_of(known, (kv, tokens))
        fits.append(fit_transform(moments))

    plain, far = (fit.codebook.energies[0].sum() for fit in fits)
    assert far == pytest.approx(plain, rel=0.05)


def test_texts_of_one_token_alone_make_no_codebook():
    tokens = [3] * 200
    fitted = fit_transform(moments_of(make_features(), (make_chunk(tokens=200, dtype=torch.float32), tokens)))
    assert fitted.codebook is None


@pytest.mark.parametrize(
    "tokens", [[], [1] * 89, [1] * 89 + [-1], [1] * 89 + [40]], ids=["none", "few", "below", "above"]
)
def test_ids_that_do_not_name_the_contexts_tokens_are_refused(tokens):
    with pytest.raises(InvalidInputError, match="must reach to position 89"):
        moments_of(make_features(), (make_chunk(tokens=90), tokens))
