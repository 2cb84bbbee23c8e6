"""Sinks are the tokens whose values almost vanish in some layer."""

import torch

from cachegen.codecs.sink_tokens import find_sinks


def test_tokens_whose_values_almost_vanish_in_some_layer_are_sinks():
    values = torch.randn((3, 40, 2, 8), generator=torch.Generator().manual_seed(0))
    values[1, 7] *= 0.1
    values[2, 30] *= 0.02
    values[:, 12] *= 0.5

    assert find_sinks(values).nonzero()[:, 0].tolist() == [7, 30]


def test_there_are_none_where_all_values_are_alike():
    assert not find_sinks(torch.ones(2, 5, 1, 4)).any()
    assert not find_sinks(torch.zeros(2, 5, 1, 4)).any()
    assert not find_sinks(torch.ones(2, 1, 1, 4)).any()
