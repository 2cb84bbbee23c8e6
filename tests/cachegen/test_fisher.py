"""Fisher information says what errors in a cache cost, and gathering it leaves the model alone."""

import logging

import numpy as np
import pytest
import torch
from families import SUPPORTED, model_of
from tiny_models import random_tokens, tiny_gpt2, tiny_llama

import cachegen.fisher
from cachegen.calibration import prefilled_kv
from cachegen.codecs.token_steps import DISTANCE_POWER
from cachegen.codecs.transform import SINK_TOKENS
from cachegen.fisher import FisherInformation
from cachegen.model_probe import find_rotary
from cachegen.profile_builder import ProfileBuilder


def information_of(model, token_ids, times=1):
    fisher = FisherInformation(model, find_rotary(model))
    kv = prefilled_kv(model, token_ids)
    for _ in range(times):
        fisher.add(kv, token_ids)
    return fisher.blocks()


def test_blocks_are_second_moments():
    blocks = information_of(tiny_llama(), random_tokens(60))

    assert blocks.shape == (3, 2, 2, 8, 8)
    assert np.allclose(blocks, blocks.swapaxes(-1, -2), rtol=1e-4, atol=1e-5)
    assert (np.linalg.eigvalsh(blocks) > -1e-4 * blocks.max()).all()


@pytest.mark.parametrize("half", [0, 1])
def test_they_foretell_the_divergence_that_noise_causes(half, monkeypatch):
    """Noise that grows with the distance as a token's steps do: half the trace, in the sum over what follows."""
    monkeypatch.setattr(cachegen.fisher, "find_sinks", lambda values: torch.zeros(values.shape[1], dtype=torch.bool))
    model, token_ids, layer, deviation, times, trials = tiny_llama(), random_tokens(60), 1, 0.02, 200, 60
    with torch.no_grad():
        for weight in model.network.parameters():
            # so that it predicts something, and rounding is nothing beside the noise
            weight *= 6 if weight.ndim == 2 else 1
    block = information_of(model, token_ids, times)[layer, half] / times
    context, behind = token_ids[:30], token_ids[30:]
    cache = model.new_cache(60)
    model.prefill(cache, context)
    clean, random = cache.chunk(0, 30), torch.Generator().manual_seed(0)
    reference = model.continuation_logits(cache, behind).log_softmax(dim=-1)
    sizes = deviation * torch.arange(30, 0, -1.0) ** DISTANCE_POWER
    sizes[:SINK_TOKENS] = 0
    divergences = []
    for _ in range(trials):
        noisy = clean.clone()
        noisy[layer, half] += torch.randn(noisy[layer, half].shape, generator=random) * sizes[:, None, None]
        cache.truncate(0)
        cache.append(noisy, context)
        found = model.continuation_logits(cache, behind).log_softmax(dim=-1)
        divergences.append(float((reference.exp() * (reference - found)).sum()))

    foretold = 0.5 * deviation**2 * float(np.trace(block, axis1=-2, axis2=-1).sum())
    assert foretold == pytest.approx(np.mean(divergences), rel=0.25)


# the transform cannot code this one's keys
@pytest.mark.parametrize("family", sorted(SUPPORTED.keys() - {"hunyuan_v1_dense"}))
def test_every_family_gives_gradients(family):
    blocks = information_of(model_of(family), random_tokens(120))
    # of the keys and of the values of every layer
    assert (np.trace(blocks, axis1=-2, axis2=-1).sum(axis=2) > 0).all()


def test_the_same_context_gives_the_same_information_and_leaves_the_model_as_it_was():
    model, token_ids = tiny_llama(), random_tokens(60)
    model.network.lm_head.weight.requires_grad_(False)
    before = [weight.requires_grad for weight in model.network.parameters()]
    state = torch.get_rng_state()
    first = information_of(model, token_ids)

    assert [weight.requires_grad for weight in model.network.parameters()] == before
    assert all(weight.grad is None for weight in model.network.parameters())
    assert torch.equal(torch.get_rng_state(), state)
    with torch.inference_mode():
        np.testing.assert_array_equal(information_of(model, token_ids), first)


def test_a_model_without_gradients_has_no_information_and_says_so(caplog, monkeypatch):
    model, token_ids = tiny_llama(), random_tokens(60)
    fisher = FisherInformation(model, find_rotary(model))
    kv, forward = prefilled_kv(model, token_ids), model.network.forward
    monkeypatch.setattr(model.network, "forward", torch.no_grad()(forward))
    with caplog.at_level(logging.WARNING, logger="cachegen.calibration"):
        fisher.add(kv, token_ids)
        fisher.add(kv, token_ids)
        assert fisher.blocks() is None

    assert [record.getMessage().split(": ")[1] for record in caplog.records] == [
        "no gradients of the KV cache",
        "nothing is known of what errors in its KV cache cost",
    ]
    assert all(weight.requires_grad for weight in model.network.parameters())


def test_sinks_do_not_count(monkeypatch):
    monkeypatch.setattr(cachegen.fisher, "find_sinks", lambda values: torch.ones(values.shape[1], dtype=torch.bool))
    assert information_of(tiny_llama(), random_tokens(60)) is None


def test_gradients_that_are_not_finite_are_left_out_and_the_others_count(caplog, monkeypatch):
    model, token_ids = tiny_llama(), random_tokens(60)
    fisher = FisherInformation(model, find_rotary(model))
    kv = prefilled_kv(model, token_ids)
    fisher.add(kv, token_ids)
    before = fisher.blocks()
    monkeypatch.setattr(fisher, "_gradients", lambda kv, _behind: torch.full(kv.transpose(2, 3).shape, torch.inf))
    with caplog.at_level(logging.WARNING, logger="cachegen.calibration"):
        fisher.add(kv, token_ids)

    assert "gradients that are not finite are left out" in caplog.text
    np.testing.assert_array_equal(fisher.blocks(), before)


def test_dropout_takes_no_part_and_is_put_back():
    token_ids, models = random_tokens(60), [tiny_gpt2(), tiny_gpt2()]
    kv = prefilled_kv(models[0], token_ids)
    models[1].network.train()
    models[1].network.get_input_embeddings().eval()
    modes = [module.training for module in models[1].network.modules()]
    found = []
    for model in models:
        fisher = FisherInformation(model, find_rotary(models[0]))
        fisher.add(kv, token_ids)
        found.append(fisher.blocks())

    np.testing.assert_array_equal(*found)
    assert [module.training for module in models[1].network.modules()] == modes
    assert True in modes
    assert False in modes


@pytest.mark.parametrize("part", ["v_proj", "o_proj"])
def test_a_layer_whose_errors_cost_nothing_makes_a_profile_all_the_same(part):
    model, token_ids = tiny_llama(), random_tokens(300)
    with torch.no_grad():
        getattr(model.network.model.layers[1].self_attn, part).weight.zero_()
    rotary = find_rotary(model)
    builder, fisher = ProfileBuilder(model.shape, model.fingerprint, rotary), FisherInformation(model, rotary)
    kv = prefilled_kv(model, token_ids)
    builder.add(kv, token_ids)
    fisher.add(kv, token_ids)
    blocks = fisher.blocks()

    assert not blocks[1, 0].any()
    assert not isinstance(builder.build(blocks).tables.transform, str)
