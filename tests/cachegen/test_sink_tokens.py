"""Sinks are the tokens whose values almost vanish in some layer."""

import torch

from cachegen.codecs.sink_tokens import find_sinks, find_strong_sinks


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


def test_strong_sinks_are_those_whose_values_vanish_most():
    values = torch.randn((3, 200, 2, 8), generator=torch.Generator().manual_seed(0))
    values[1, 7] *= 0.2
    values[2, [30, 50]] *= 0.02
    values[0, 90] *= 0.01

    assert find_sinks(values).nonzero()[:, 0].tolist() == [7, 30, 50, 90]
    assert find_strong_sinks(values).nonzero()[:, 0].tolist() == [30, 50, 90]


def test_a_fiftieth_of_the_tokens_are_strong_at_most():
    values = torch.ones(2, 100, 1, 4)
    values[0, :40] = torch.linspace(0.01, 0.05, 40)[:, None, None]

    assert find_strong_sinks(values).nonzero()[:, 0].tolist() == [0, 1]
    assert find_strong_sinks(values[:, :51]).nonzero()[:, 0].tolist() == []
    assert find_strong_sinks(values[:, 38:]).nonzero()[:, 0].tolist() == [0, 1]
    assert find_strong_sinks(values[:, 39:]).nonzero()[:, 0].tolist() == [0]


def test_there_are_no_strong_ones_where_all_values_are_alike():
    assert not find_strong_sinks(torch.ones(2, 5, 1, 4)).any()
    assert not find_strong_sinks(torch.zeros(2, 5, 1, 4)).any()
    assert not find_strong_sinks(torch.zeros(2, 1, 1, 4)).any()


def test_of_equal_values_the_first_are_strong():
    values = torch.ones(2, 100, 1, 4)
    values[0, 10:40] = 0.01

    assert find_strong_sinks(values).nonzero()[:, 0].tolist() == [10, 11]


def test_layers_without_values_and_layers_of_huge_ones_hide_no_sinks():
    values = torch.ones(3, 100, 1, 4)
    values[0], values[1] = 0.0, 1e30
    values[2, 7] = 0.01

    assert find_sinks(values).nonzero()[:, 0].tolist() == [7]
    assert find_strong_sinks(values).nonzero()[:, 0].tolist() == [7]
