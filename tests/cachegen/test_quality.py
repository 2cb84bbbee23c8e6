"""KL, agreement and perplexity change."""

import math

import pytest
import torch

from cachegen import compare_logits


def test_equal_logits_differ_in_nothing():
    logits = torch.randn(8, 50, generator=torch.Generator().manual_seed(0))
    quality = compare_logits(logits, logits.clone(), range(8))
    assert (quality.kl, quality.agreement, quality.dppl) == (0.0, 1.0, 0.0)


def test_figures_of_two_known_distributions():
    reference = torch.tensor([[0.75, 0.25]]).log()
    loaded = torch.tensor([[0.25, 0.75]]).log()
    quality = compare_logits(reference, loaded, [0])

    assert quality.kl == pytest.approx(0.75 * math.log(3) - 0.25 * math.log(3))
    assert quality.agreement == 0.0
    assert quality.dppl == pytest.approx(1 / 0.25 - 1 / 0.75)


def test_agreement_is_a_share_of_positions():
    reference = torch.eye(4) * 9
    loaded = reference.clone()
    loaded[0] = loaded[0].flip(0)
    assert compare_logits(reference, loaded, [0, 1, 2, 3]).agreement == 0.75
