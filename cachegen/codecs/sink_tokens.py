"""Attention sinks within a context: tokens that later ones look at as at the first, by their small values."""

from __future__ import annotations

import math

import torch

# In some layer a sink's values have less than this share of the energy that the tokens around it have there. Models
# keep them small since so much attention goes there: of the default model's tokens, some have 1/60, others 1/8 or more.
LARGEST_SHARE = 1 / 15
# Of a strong sink: of 2,048 tokens of prose, half a dozen did a third of all harm, with steps half of the others'.
STRONG_SHARE = 1 / 60
# Of a chunk's tokens, so many are strong at most, rounded up: where values vanish for other reasons, that costs little.
MOST_STRONG = 1 / 50


def find_sinks(values: torch.Tensor) -> torch.Tensor:
    """Which tokens are sinks.

    Parameters
    ----------
    values : float tensor, ``(layers, tokens, kv_heads, head_dim)``
        Of a chunk or a context.

    Returns
    -------
    bool tensor, ``(tokens,)``
    """
    return _least_shares(values) < LARGEST_SHARE


def find_strong_sinks(values: torch.Tensor) -> torch.Tensor:
    """Which of them are strong: those whose values vanish most; as :func:`find_sinks`."""
    shares = _least_shares(values)
    # of equal ones, the first: in a model's first layer all occurrences of a word may have the same values
    least = shares.argsort(stable=True)[: math.ceil(MOST_STRONG * len(shares))]
    among = torch.zeros_like(shares, dtype=torch.bool)
    among[least] = True
    return among & (shares < STRONG_SHARE)


def _least_shares(values: torch.Tensor) -> torch.Tensor:
    """Energy of each token's values relative to the usual, in the layer where that is least, ``(tokens,)``."""
    # in float32 the square of a large value is infinite
    energies = values.double().square().sum(dim=(2, 3))
    usual = energies.median(dim=1, keepdim=True).values
    # a layer without values has no sinks
    return torch.where(usual > 0, energies / usual, 1.0).amin(dim=0)
