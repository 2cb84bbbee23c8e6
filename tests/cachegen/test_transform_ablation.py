"""Stages of the transform codec: each adds one idea, the last one is the codec that ``calibrate`` fits."""

from dataclasses import replace

import numpy as np
import pytest
from tiny_models import random_tokens, tiny_llama

import cachegen.own_text
from cachegen import calibrate
from cachegen.calibration import calibration_contexts
from cachegen.codecs.units import APART, JOINT, units_of
from cachegen.encoding import Encoding
from cachegen.held_out import HeldOutText, check_encoding
from cachegen.kernels.uniform import LEVEL_PLACES
from cachegen.kv import KVShape
from cachegen.model_probe import find_rotary
from cachegen.profile_arrays import named_arrays
from cachegen.token_features import token_features
from cachegen.transform_ablation import gather_evidence, run_transform_ablation, stages_of


class TextOfTokens:
    """Takes numbers for words, and a word for its length."""

    def __call__(self, text, add_special_tokens):
        return {"input_ids": [int(word) if word.isdigit() else len(word) for word in text.split()]}


TEXTS = [" ".join(map(str, random_tokens(200, seed))) for seed in (1, 2)]


@pytest.fixture
def model(monkeypatch):
    monkeypatch.setattr(cachegen.own_text, "SAMPLE_TOKENS", 16)
    monkeypatch.setattr(cachegen.own_text, "_OPENING_TOKENS", 1)
    llama = tiny_llama(layers=2)
    llama._tokenizer = TextOfTokens()
    return llama


def test_stages_add_one_idea_each_and_groups_of_layers_as_far_as_they_go():
    stages = stages_of(KVShape(30, 3, 64), codebook=True)

    assert [len(units_of(KVShape(30, 3, 64), stage.grouping)) for stage in stages] == [
        *(60, 60, 60, 60),
        *(12, 6, 4),
        *(2, 2, 2, 2, 2),
    ]
    assert [stage.name for stage in stages][4:7] == [f"+ KLT across {layers} layers" for layers in (5, 10, 15)]
    names = ("decorrelate", "layer_steps", "key_metric", "codebook", "references", "in_stages", "token_steps")
    ideas = [[getattr(stage, name) for name in names] for stage in stages]
    assert [sum(now) for now in ideas] == [0, 1, 2, 3, 3, 3, 3, 3, 4, 5, 6, 7]
    # in this order, and none is given up again
    assert ideas == [[True] * sum(now) + [False] * (7 - sum(now)) for now in ideas]
    assert [stage.grouping == JOINT for stage in stages] == [False] * 7 + [True] * 5


def test_a_model_of_whose_tokens_nothing_is_known_has_all_stages_but_the_codebooks():
    with_it, without = (stages_of(KVShape(30, 3, 64), codebook=codebook) for codebook in (True, False))

    assert [stage.name for stage in with_it if stage.codebook and not stage.references] == ["+ codebook of tokens"]
    assert without == [replace(stage, codebook=False) for stage in with_it if stage.name != "+ codebook of tokens"]


@pytest.mark.parametrize("codebook", [False, True])
@pytest.mark.parametrize("shape", [KVShape(1, 2, 8), KVShape(2, 40, 128), KVShape(4, 8, 128), KVShape(24, 2, 64)])
def test_any_model_has_stages_that_end_with_the_codecs_own_units(shape, codebook):
    stages = stages_of(shape, codebook=codebook)
    units = [units_of(shape, stage.grouping) for stage in stages]

    assert units[-1] == units_of(shape)
    assert [len(each) for each in units] == sorted((len(each) for each in units), reverse=True)
    assert len({stage.name for stage in stages}) == len(stages)


def test_the_last_stage_is_fitted_as_calibrate_fits(model):
    contexts, features = calibration_contexts(model, TEXTS), token_features(model)
    evidence = gather_evidence(model, contexts, find_rotary(model), features, {APART, JOINT}, lambda: None)
    fitted = evidence.fit(stages_of(model.shape, codebook=True)[-1])

    tables = calibrate(model, TEXTS, transform=True).tables
    expected = dict(named_arrays(tables))
    found = dict(named_arrays(replace(tables, transform=fitted)))
    assert fitted.codebook is not None
    assert found.keys() == expected.keys()
    assert all(np.array_equal(found[name], expected[name]) for name in expected)


def test_every_stage_is_measured_at_every_level_and_the_last_one_is_the_codec(model):
    steps = []
    held_out = HeldOutText(model, random_tokens(400, seed=3), chunk_tokens=100)
    rows = run_transform_ablation(model, TEXTS, held_out, lambda done, total: steps.append((done, total)))
    names = [stage.name for stage in stages_of(model.shape, codebook=True)]

    assert [(row.variant, row.level) for row in rows] == [
        (name, level) for name in names for level in range(len(LEVEL_PLACES))
    ]
    assert steps == [(done, len(steps)) for done in range(1, len(steps) + 1)]
    for name in names:
        measured = [row for row in rows if row.variant == name]
        assert [row.num_bytes for row in measured] == sorted((row.num_bytes for row in measured), reverse=True)
        assert measured[0].kl < measured[-1].kl
    profile = calibrate(model, TEXTS, transform=True)
    for row in rows[-len(LEVEL_PLACES) :]:
        expected = check_encoding(held_out, profile, Encoding("transform", row.level))
        assert (row.num_bytes, row.kl) == (expected.num_bytes, expected.kl)


def test_a_klt_takes_fewer_bytes_than_the_channels_as_they_are(model):
    held_out = HeldOutText(model, random_tokens(400, seed=3))
    rows = {(row.variant, row.level): row for row in run_transform_ablation(model, TEXTS, held_out)}
    plain, decorrelated = [rows[stage.name, 2].num_bytes for stage in stages_of(model.shape, codebook=True)[:2]]

    assert decorrelated < plain
