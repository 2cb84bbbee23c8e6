"""Attention sinks within a context: tokens that later ones look at as at the first, by their small values."""

from __future__ import annotations

import torch

# In some layer a sink's values have less than this share of the energy that the tokens around it have there. Models
# keep them small since so much attention goes there: of the default model's tokens, some have 1/60, others 1/8 or more.
LARGEST_SHARE = 1 / 15


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
    energies = values.float().square().sum(dim=(2, 3))
    usual = energies.median(dim=1, keepdim=True).values
    return (energies < usual * LARGEST_SHARE).any(dim=0)
