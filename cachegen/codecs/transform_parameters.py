"""A profile's parameters of the ``transform`` codec as decoding wants them, on the device that decodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from cachegen.codecs.codebook import FeatureTables
from cachegen.kernels.products import COEFFICIENT_MULTIPLE, multiple, product_dtype

if TYPE_CHECKING:
    from cachegen.codecs.transform_tables import TransformTables


@dataclass(frozen=True)
class DecodeParameters:
    """Tensors on one device; heads are counted layer-major.

    Parameters
    ----------
    bases : tuple of tensors
        Of each unit, in the type that the device multiplies fastest: ``feature_rows`` rows of the codebook's predictor,
        then the basis; rows of zeros make either a multiple of ``COEFFICIENT_MULTIPLE``.
    features : FeatureTables or None
        Of the codebook, where there is one.
    feature_rows : int
        0 where there is none.
    means : float32 tensor, ``(2, heads, head_dim)``
    inverse_key_roots : float32 tensor, ``(heads, head_dim, head_dim)``
    factors : float32 tensor, ``(2, heads)``
        1 for keys, one over the layer's scale for values.
    partners : int32 tensor, ``(kinds, head_dim)``
    kind_of_head : int32 tensor, ``(heads,)``
        Of rotation, both.
    """

    bases: tuple[torch.Tensor, ...]
    features: FeatureTables | None
    feature_rows: int
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
    dtype = product_dtype(device.type)
    bases = [_padded(torch.from_numpy(basis).to(device).to(dtype)) for basis in transform.bases]
    features, feature_rows = None, 0
    if transform.codebook is not None:
        features = transform.codebook.features_on(device)
        of_features = [_padded(torch.from_numpy(each).to(device).to(dtype)) for each in transform.codebook.predictors]
        feature_rows = len(of_features[0])
        bases = [torch.cat(pair) for pair in zip(of_features, bases, strict=True)]
    return DecodeParameters(
        tuple(bases),
        features,
        feature_rows,
        torch.from_numpy(transform.means).reshape(2, -1, head_dim).to(device),
        transform.inverse_key_roots.to(device),
        torch.from_numpy(factors).to(device),
        torch.from_numpy(transform.rotary.partners.astype(np.int32)).to(device),
        torch.from_numpy(kinds).to(device),
    )


def _padded(basis: torch.Tensor) -> torch.Tensor:
    padded = basis.new_zeros((multiple(len(basis), COEFFICIENT_MULTIPLE), basis.shape[1]))
    padded[: len(basis)] = basis
    return padded
