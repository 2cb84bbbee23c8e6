"""A unit's basis as decoding wants it: from symbols to channels by products of the device's matrix library."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from cachegen.codecs.basis import Basis
from cachegen.kernels.products import factor_rows, product_columns, product_depth, product_dtype


@dataclass(frozen=True)
class DecodeBasis:
    """A basis and, where there is a codebook, its predictor; all matrices are the left factors of their products.

    A product whose right factor is the smaller one copies nothing of the larger, and takes for some of the tokens no
    more than their share of all. Columns of zeros fill up what is stored, see ``products``.

    Parameters
    ----------
    joint : tensor, ``(sum of leads, rows or more)``
    blocks : tuple of tensors, ``(channels of the block, feature_rows + rows or more)``
    leads : tuple of int
        Of each block, see ``Basis``.
    coefficients_of : tuple of int64 tensors
        Which coefficients are the joint's, and each block's.
    sources : uint8 array, ``(rank,)``
        See ``Basis``.
    feature_rows : int
        0 where there is no codebook.
    """

    joint: torch.Tensor
    blocks: tuple[torch.Tensor, ...]
    leads: tuple[int, ...]
    coefficients_of: tuple[torch.Tensor, ...]
    sources: npt.NDArray[np.uint8]
    feature_rows: int

    @property
    def token_bytes(self) -> int:
        """What restoring takes for each token: factors and results of its largest products, and what they come from."""
        of_leads = sum(self.joint.shape)
        of_block = max(sum(block.shape) for block in self.blocks)
        symbols = max(len(own) for own in self.coefficients_of)
        return (
            self.joint.element_size() * (of_leads + of_block + self.feature_rows)
            + torch.int32.itemsize * symbols
            + 2 * torch.float32.itemsize * self.feature_rows
        )

    def channels(self, symbols: torch.Tensor, features: torch.Tensor | None) -> Iterator[torch.Tensor]:
        """Channels of each block, ``(channels, tokens)``, in multiples of each token's step.

        Parameters
        ----------
        symbols : integer tensor, ``(coefficients, tokens)``
            The first so many of all coefficients.
        features : tensor or None, ``(tokens, features)``
            In multiples of the tokens' steps, where there is a codebook.
        """
        rank, count = symbols.shape
        size = product_columns(count)
        counts = np.bincount(self.sources[:rank], minlength=len(self.coefficients_of))
        coded = [own[:number] for own, number in zip(self.coefficients_of, counts.tolist(), strict=True)]
        of_features = None if features is None else features.T.to(self.joint.dtype).contiguous()
        leads = torch.split(self._leads(symbols[coded[0]], size), list(self.leads))
        for block, lead, own in zip(self.blocks, leads, coded[1:], strict=True):
            before = self.feature_rows + len(lead)
            depth = product_depth(before + len(own), block.shape[1], size)
            factor = block.new_zeros((depth, size))
            if of_features is not None:
                factor[: len(of_features), :count] = of_features
            factor[self.feature_rows : before] = lead
            factor[before : before + len(own), :count] = symbols[own]
            yield (block[:, :depth] @ factor)[:, :count]

    def _leads(self, symbols: torch.Tensor, size: int) -> torch.Tensor:
        """What the joint's symbols say of the leads, ``(leads, size)``."""
        depth = product_depth(len(symbols), self.joint.shape[1], size)
        factor = self.joint.new_zeros((depth, size))
        factor[: len(symbols), : symbols.shape[1]] = symbols
        return self.joint[:, :depth] @ factor


def decode_basis(basis: Basis, predictor: torch.Tensor | None, device: torch.device) -> DecodeBasis:
    """On a device, in the type that it multiplies fastest; ``predictor`` is ``(features, channels of the unit)``."""
    dtype = product_dtype(device.type)

    def left_factor(rows: torch.Tensor, columns: int) -> torch.Tensor:
        """Transposed, with columns of zeros behind, so many in all."""
        factor = torch.zeros((rows.shape[1], columns), dtype=dtype, device=device)
        factor[:, : len(rows)] = rows.T.to(device)
        return factor

    # all with as many columns, so that their products have few sizes
    columns = factor_rows(max(map(len, basis.blocks)), max(rows.shape[1] for rows in basis.blocks))
    blocks = [left_factor(torch.from_numpy(rows), columns) for rows in basis.blocks]
    feature_rows = 0
    if predictor is not None:
        feature_rows = factor_rows(len(predictor), len(predictor))
        of_features = [left_factor(predictor[:, channels], feature_rows) for channels in basis.channels_of]
        blocks = [torch.cat(pair, dim=1) for pair in zip(of_features, blocks, strict=True)]
    return DecodeBasis(
        left_factor(torch.from_numpy(basis.joint), factor_rows(*basis.joint.shape)),
        tuple(blocks),
        tuple(basis.leads.tolist()),
        tuple(torch.from_numpy(coefficients).to(device) for coefficients in basis.coefficients_of),
        basis.sources,
        feature_rows,
    )
