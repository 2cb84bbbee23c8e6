"""Profiles of models: made once, found again, remade when damaged."""

import pytest
from families import network_of
from tiny_models import VOCABULARY, tiny_llama

import cachegen.own_text
from cachegen import (
    Encoding,
    InvalidInputError,
    LanguageModel,
    MismatchError,
    UnsupportedModelError,
    cached_profile,
    calculate_kv,
    calibrate,
    calibration_texts,
    check_held_out,
    store_kv,
)
from testbed.contexts.reference import reference_contexts


class ByteTokenizer:
    """A token for each byte, folded into the tiny models' vocabulary."""

    def __call__(self, text, add_special_tokens):
        return {"input_ids": [byte % VOCABULARY for byte in text.encode()]}


@pytest.fixture
def model(monkeypatch):
    """A model whose own texts are short, for speed."""
    monkeypatch.setattr(cachegen.own_text, "SAMPLE_TOKENS", 16)
    llama = tiny_llama(layers=1)
    llama._tokenizer = ByteTokenizer()
    return llama


@pytest.fixture
def cache_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def test_calibration_texts_are_long_and_shared_with_no_context():
    texts = calibration_texts()
    assert len(texts) == 6
    assert min(len(text) for text in texts) > 4 * 2048
    sample = {line for text in texts for line in text.splitlines() if len(line) > 60}
    contexts = {line for context in reference_contexts(4, 2048) for line in context.text.splitlines()}
    assert not sample & contexts


@pytest.mark.parametrize(
    ("transform", "num_steps"),
    # for the transform: the model writes its texts; six given ones and three of its own; the fit
    [(False, 6), (True, 11)],
)
def test_a_profile_is_made_once_and_found_again(model, cache_folder, transform, num_steps):
    steps = []
    first = cached_profile(model, lambda done, total: steps.append((done, total)), transform=transform)
    again = cached_profile(model, lambda done, total: pytest.fail("was calibrated again"), transform=transform)

    assert steps == [(done, num_steps) for done in range(1, num_steps + 1)]
    assert again.hash == first.hash
    assert again.model_fingerprint == model.fingerprint


def test_profiles_with_and_without_the_transform_are_kept_apart(model, cache_folder):
    without, with_it = cached_profile(model), cached_profile(model, transform=True)
    assert without.hash != with_it.hash
    assert cached_profile(model).hash == without.hash
    assert "transform=True" in without.tables.transform
    cache = calculate_kv(model, model.tokenize("some text"))
    with pytest.raises(UnsupportedModelError, match="transform=True"):
        store_kv(str(cache_folder / "store"), model, cache, ["transform-1"], without)
    assert not (cache_folder / "store").exists()


def test_a_damaged_profile_is_made_anew(model, cache_folder):
    profile = cached_profile(model)
    [path] = (cache_folder / "cachegen" / "profiles").iterdir()
    path.write_bytes(path.read_bytes()[:-7])
    assert cached_profile(model).hash == profile.hash


def test_short_texts_are_refused(model):
    with pytest.raises(InvalidInputError, match="128 tokens at least; none of 2 is"):
        calibrate(model, ["short", "shorter"])


def test_a_damaged_profile_stays_in_its_place_until_it_is_replaced(model, cache_folder):
    cached_profile(model)
    [path] = (cache_folder / "cachegen" / "profiles").iterdir()
    path.write_bytes(b"damaged")
    seen = []
    cached_profile(model, lambda _done, _all: seen.append(path.exists()))
    assert seen == [True] * 6


def test_a_model_whose_keys_turn_in_no_known_way_gets_tables_and_a_reason(monkeypatch):
    model = LanguageModel(network_of("hunyuan_v1_dense"), ByteTokenizer(), "hunyuan")
    steps = []
    profile = calibrate(model, calibration_texts()[:2], lambda done, total: steps.append((done, total)), transform=True)

    assert steps == [(1, 2), (2, 2)]
    assert "keys of layer 0 turn" in profile.tables.transform
    assert profile.tables.anchors.rows == 4


def test_held_out_check_counts_bytes_and_harm_of_each_encoding(model):
    texts = calibration_texts()
    profile = calibrate(model, texts[:2], transform=True)
    tokens = model.tokenize(texts[3])[:500]
    rows = check_held_out(model, profile, tokens, [Encoding("raw"), Encoding("transform", 0), Encoding("transform", 4)])

    assert [str(row.encoding) for row in rows] == ["raw", "transform-0", "transform-4"]
    assert rows[0].kl == 0.0
    assert rows[0].agreement == 1.0
    assert rows[0].bits_per_element == pytest.approx(32, rel=0.05)
    assert rows[2].num_bytes < rows[1].num_bytes < rows[0].num_bytes / 4
    assert rows[1].kl <= rows[2].kl < 0.1
    assert rows[2].ratio_fp16 == pytest.approx(16 / rows[2].bits_per_element)


def test_a_check_with_the_profile_of_another_model_is_refused(model):
    profile = calibrate(model, calibration_texts()[:1])
    other = tiny_llama(layers=1, seed=5)
    with pytest.raises(MismatchError, match=f"of model {profile.model_fingerprint.hex()}; "):
        check_held_out(other, profile, [1] * 300, [Encoding("cachegen", 1)])


def test_held_out_text_must_leave_a_context(model):
    profile = calibrate(model, calibration_texts()[:1])
    with pytest.raises(InvalidInputError, match="256 tokens leaves no context"):
        check_held_out(model, profile, [1] * 256, [Encoding("raw")])
