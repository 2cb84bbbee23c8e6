"""A profile's parameters of the ``transform`` codec as decoding wants them, on the device that decodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from cachegen.codecs.codebook import FeatureTables
from cachegen.codecs.decode_basis import DecodeBasis, decode_basis

if TYPE_CHECKING:
    from cachegen.codecs.transform_tables import TransformTables


@dataclass(frozen=True)
class DecodeParameters:
    """Tensors on one device; heads are counted layer-major.

    Parameters
    ----------
    bases : tuple of DecodeBasis
        Of each unit.
    features : FeatureTables or None
        Of the codebook, where there is one.
    means : float32 tensor, ``(2, heads, head_dim)``
    inverse_key_roots : float32 tensor, ``(heads, head_dim, head_dim)``
    factors : float32 tensor, ``(2, heads)``
        1 for keys, one over the layer's scale for values.
    partners : int32 tensor, ``(kinds, head_dim)``
    kind_of_head : int32 tensor, ``(heads,)``
        Of rotation, both.
    """

    bases: tuple[DecodeBasis, ...]
    features: FeatureTables | None
    means: torch.Tensor
    inverse_key_roots: torch.Tensor
    factors: torch.Tensor
    partners: torch.Tensor
    kind_of_head: torch.Tensor


def decode_parameters(transform: TransformTables, device: torch.device) -> DecodeParameters:
    """The parameters on a device."""
    per_layer, head_dim = transform.shape.num_kv_heads, transform.shape.head_dim
    of_values = np.repeat(1 / transform.value_scales, per_layer)
    factors = np.stack([np.ones_like(of_values), of_values])
    kinds = np.repeat(transform.rotary.of_layer, per_layer).astype(np.int32)
    codebook = transform.codebook
    predictors = [None] * len(transform.bases) if codebook is None else map(torch.from_numpy, codebook.predictors)
    return DecodeParameters(
        tuple(decode_basis(*pair, device) for pair in zip(transform.bases, predictors, strict=True)),
        None if codebook is None else codebook.features_on(device),
        torch.from_numpy(transform.means).reshape(2, -1, head_dim).to(device),
        transform.inverse_key_roots.to(device),
        torch.from_numpy(factors).to(device),
        torch.from_numpy(transform.rotary.partners.astype(np.int32)).to(device),
        torch.from_numpy(kinds).to(device),
    )
