"""What is known of a model's tokens before any context: embedding, and what the first layer makes of each alone."""

import json

import pytest
import safetensors
import torch
from families import SUPPORTED, letters, model_of
from tiny_models import VOCABULARY, tiny_gpt2, tiny_llama
from transformers import AutoConfig, AutoModelForCausalLM

import cachegen.own_text
from cachegen import LanguageModel, calibrate, save_profile, token_features
from cachegen.token_features import token_features as features_of

MODELS = {"llama": tiny_llama, "gpt2": tiny_gpt2}
TEXTS = ["The quick brown fox jumps over the lazy dog. " * 5]


def first_layer_of(model):
    network = model.network
    return (network.model.layers if hasattr(network, "model") else network.transformer.h)[0]


def of_one_length(rows):
    """Rows as long as rows of elements around 1 are."""
    return torch.nn.functional.normalize(rows.float(), dim=1) * rows.shape[1] ** 0.5


def without_a_plain_embedding(model):
    model.network.get_input_embeddings = torch.nn.Identity
    return model


def without_a_list_of_layers(model):
    model.network.model.layers = torch.nn.Sequential(*model.network.model.layers)
    return model


def without_a_way_to_its_embedding(model):
    def absent():
        raise NotImplementedError

    model.network.get_input_embeddings = absent
    return model


UNKNOWN = [without_a_plain_embedding, without_a_way_to_its_embedding, without_a_list_of_layers]


@pytest.mark.parametrize("family", MODELS)
def test_a_token_has_its_embedding_and_what_the_first_layer_makes_of_it_alone(family):
    model = MODELS[family]()
    found = features_of(model)
    embedding = model.network.get_input_embeddings().weight.detach()
    with torch.inference_mode():
        alone = [
            model.network(torch.tensor([[token]]), output_hidden_states=True).hidden_states[1][0, 0]
            for token in range(VOCABULARY)
        ]

    assert (found.own.dtype, found.previous.dtype) == (torch.float16, torch.float16)
    size = embedding.shape[1]
    assert found.own.shape == (VOCABULARY, 2 * size)
    exact = {"rtol": 2e-3, "atol": 2e-3}
    torch.testing.assert_close(found.previous.float(), of_one_length(embedding), **exact)
    assert torch.equal(found.own[:, :size], found.previous)
    torch.testing.assert_close(found.own[:, size:].float(), of_one_length(torch.stack(alone)), **exact)


@pytest.mark.parametrize("family", SUPPORTED)
def test_features_of_every_family_are_finite_and_say_more_than_the_embedding(family):
    model = model_of(family)
    found = features_of(model)
    if family == "gemma3n_text":
        # it keeps keys and values of fewer layers than it has
        assert found is None
        return
    assert bool(found.own.isfinite().all())
    half = found.previous.shape[1]
    assert len(found.own) == len(found.previous) == len(model.network.get_input_embeddings().weight)
    assert not torch.equal(found.own[:, :half], found.own[:, half:])


def test_a_tower_of_pictures_with_as_many_layers_is_not_taken_for_the_language_model():
    settings = SUPPORTED["gemma3"]
    pictures = settings["vision_config"] | {"num_hidden_layers": settings["text_config"]["num_hidden_layers"]}
    config = AutoConfig.for_model("gemma3", **(settings | {"vision_config": pictures}))
    model = LanguageModel(AutoModelForCausalLM.from_config(config).eval(), None, "gemma3")
    found = features_of(model)

    # either the right layer is found, or nothing is known of the tokens
    assert found is None or bool(found.own.isfinite().all())


@pytest.mark.parametrize("family", MODELS)
def test_a_vocabulary_is_run_some_tokens_at_a_time(family, monkeypatch):
    model = MODELS[family]()
    whole = features_of(model)
    monkeypatch.setattr(token_features, "_BLOCK_TOKENS", 10)
    parts = features_of(model)

    torch.testing.assert_close(parts.own, whole.own, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("family", MODELS)
def test_nothing_stays_in_the_model(family):
    model = MODELS[family]()
    before = model.network(torch.tensor([[5, 6, 7]])).logits
    features_of(model)

    assert not first_layer_of(model)._forward_hooks
    assert torch.equal(model.network(torch.tensor([[5, 6, 7]])).logits, before)


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("too much"), ValueError("one sequence at a time")])
def test_a_model_that_refuses_single_tokens_has_no_features_and_nothing_stays_in_it(monkeypatch, error):
    model = tiny_llama()
    model.network.train()

    def fails(*_arguments, **_more):
        assert first_layer_of(model)._forward_hooks
        assert not model.network.training
        raise error

    monkeypatch.setattr(first_layer_of(model).self_attn, "forward", fails)
    if isinstance(error, torch.OutOfMemoryError):
        with pytest.raises(torch.OutOfMemoryError):
            features_of(model)
    else:
        assert features_of(model) is None
    assert not first_layer_of(model)._forward_hooks
    assert model.network.training


def test_rows_that_hold_no_numbers_say_nothing_and_stay_as_they_are():
    model = tiny_llama()
    table = model.network.get_input_embeddings().weight
    with torch.no_grad():
        table[7] = torch.nan
    features = features_of(model)

    assert not features.own[7].any()
    assert bool(features.own.isfinite().all())
    assert bool(features.own[8].any())
    assert bool(table[7].isnan().all())


def header_of(profile, path):
    save_profile(profile, path)
    with safetensors.safe_open(str(path), framework="numpy") as file:
        return json.loads(file.metadata()["cachegen_profile"])


@pytest.mark.parametrize("broken", UNKNOWN)
def test_nothing_is_known_of_tokens_without_a_plain_embedding_or_a_list_of_layers(broken):
    assert features_of(broken(tiny_llama())) is None


def test_a_model_of_whose_tokens_nothing_is_known_is_calibrated_without_a_codebook(tmp_path, monkeypatch):
    monkeypatch.setattr(cachegen.own_text, "SAMPLE_TOKENS", 16)
    whole, model = tiny_llama(layers=2), without_a_list_of_layers(tiny_llama(layers=2))
    whole._tokenizer = model._tokenizer = letters()
    known, unknown = (calibrate(each, TEXTS, transform=True) for each in (whole, model))

    assert known.tables.transform.codebook is not None
    assert unknown.tables.transform.codebook is None
    headers = [header_of(profile, tmp_path / "profile") for profile in (known, unknown)]
    assert [header["transform"]["codebook"] for header in headers] == [True, False]
    assert [header["schema"] for header in headers] == [5, 5]


def test_wide_rows_are_cut_to_the_directions_of_most_energy_the_same_each_time(monkeypatch):
    model = tiny_llama()
    full = features_of(model).previous.float()
    monkeypatch.setattr(token_features, "MAX_DIMENSIONS", 8)
    torch.manual_seed(1)
    first = features_of(model)
    drawn = torch.rand(1)
    torch.manual_seed(2)
    second = features_of(model)

    assert first.own.shape == (VOCABULARY, 16)
    assert first.previous.shape == (VOCABULARY, 8)
    assert torch.equal(first.own, second.own)
    # a caller's own random numbers go on as they were
    torch.manual_seed(1)
    assert torch.equal(torch.rand(1), drawn)
    # rows have the length of 8 elements now instead of 32
    energies = torch.linalg.svdvals(full / 32**0.5).square()
    assert float((first.previous.float() / 8**0.5).square().sum()) > 0.9 * float(energies[:8].sum())
