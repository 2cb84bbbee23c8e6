"""Profiles of models: made once, found again, remade when damaged."""

import pytest
from tiny_models import VOCABULARY, tiny_llama

from cachegen import InvalidInputError, cached_profile, calibrate, calibration_texts
from testbed.workload import reference_contexts


class ByteTokenizer:
    """A token for each byte, folded into the tiny models' vocabulary."""

    def __call__(self, text, add_special_tokens):
        return {"input_ids": [byte % VOCABULARY for byte in text.encode()]}


@pytest.fixture
def model():
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


def test_a_profile_is_made_once_and_found_again(model, cache_folder):
    steps = []
    first = cached_profile(model, lambda done, total: steps.append((done, total)))
    again = cached_profile(model, lambda done, total: pytest.fail("was calibrated again"))

    # the model writes its texts; six given ones and 22 of its own; one layer's K and V; the fit
    assert steps == [(done, 32) for done in range(1, 33)]
    assert again.hash == first.hash
    assert again.model_fingerprint == model.fingerprint


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
    assert seen == [True] * 32
