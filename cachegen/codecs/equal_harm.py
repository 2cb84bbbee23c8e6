"""The space of the ``transform`` codec in which equal errors do equal harm: from a chunk tensor and back."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from cachegen.codecs.codebook import Entries, preceding
from cachegen.codecs.token_groups import I64, Places
from cachegen.codecs.transform_tables import TransformTables
from cachegen.codecs.units import Unit
from cachegen.kernels.base import Backend, Turns
from cachegen.kernels.products import COEFFICIENT_MULTIPLE, multiple, product_rows
from cachegen.kernels.uniform import GRID_STEPS, SYMBOL_LARGEST

# Of a product: a library may copy as much of the basis in an order of its own, and the results are float32.
BLOCK_CHANNELS = 384


def forward(
    kv: torch.Tensor, transform: TransformTables, positions: npt.NDArray[np.int64]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and values ``(tokens, layers * channels)`` in the space where equal errors do equal harm, float32."""
    tokens, heads = kv.shape[2], kv.shape[0] * kv.shape[3]
    means = torch.from_numpy(transform.means)
    keys = transform.rotary.apply(kv[:, 0].float(), -positions)
    # (layers * kv_heads, tokens, head_dim)
    keys = keys.transpose(1, 2).reshape(heads, tokens, -1) - means[0].reshape(heads, 1, -1)
    keys = torch.bmm(keys, torch.from_numpy(transform.key_roots)).transpose(0, 1).reshape(tokens, -1)
    scales = torch.from_numpy(np.repeat(transform.value_scales, transform.shape.channels))
    values = kv[:, 1].float().transpose(0, 1).reshape(tokens, -1)
    return keys, (values - means[1]).mul_(scales)


class Backward:
    """Inverse of ``forward`` for a chunk's coded tokens, a unit's heads at a time, on the backend's device.

    Parameters
    ----------
    transform : TransformTables
    first_token : int
        Position of the chunk's first token.
    coded : int64 array, ``(tokens,)``
        Indices of the tokens in the chunk.
    places : int8 array, ``(tokens,)``
        Of each of them's step in the grid.
    entries : integer array, ``(tokens of the chunk,)``, or None
        Of the codebook, where the profile has one.
    backend : Backend
        Does the last stage.
    """

    def __init__(
        self,
        transform: TransformTables,
        first_token: int,
        coded: npt.NDArray[np.int64],
        places: Places,
        entries: Entries | None,
        backend: Backend,
    ) -> None:
        self._backend, self._parameters = backend, transform.on(backend.device)
        self._head_dim = transform.shape.head_dim
        self._steps = torch.from_numpy(np.asarray(GRID_STEPS, dtype=np.float32)[places]).to(backend.device)
        self._entries = None
        if entries is not None:
            pair = (entries[coded].astype(np.int64), preceding(entries)[coded])
            self._entries = [torch.from_numpy(each).to(backend.device) for each in pair]
        self._coded = torch.from_numpy(coded).to(backend.device)
        rotary = transform.rotary
        factors = [rotary.factors(kind, first_token + coded) for kind in range(rotary.kinds)]
        cos, sin = (torch.stack(each).to(backend.device) for each in zip(*factors, strict=True))
        self._turns = Turns(cos, sin, self._parameters.partners, self._parameters.kind_of_head)

    def token_bytes(self, unit: Unit, rank: int) -> int:
        """What restoring takes for each token: coefficients, channels of one product, and these as float32, twice."""
        parameters = self._parameters
        channels = self._block_channels(unit)
        in_product = parameters.bases[unit.index].element_size() * (parameters.feature_rows + rank + channels)
        return in_product + 2 * torch.float32.itemsize * channels

    def _block_channels(self, unit: Unit) -> int:
        """Channels of one product: whole heads, and of one size if they are not much fewer for it."""
        heads = (unit.end_channel - unit.first_channel) // self._head_dim
        most = min(heads, max(1, BLOCK_CHANNELS // self._head_dim))
        return self._head_dim * next((n for n in range(most, most // 2, -1) if heads % n == 0), most)

    def restore(self, symbols: torch.Tensor, unit: Unit, tokens: torch.Tensor, kv: torch.Tensor) -> None:
        """Put the keys or values that a unit's symbols ``(coefficients, tokens)`` describe in their places.

        ``tokens`` says which of the coded ones they are.
        """
        parameters = self._parameters
        rank, count = symbols.shape
        before = parameters.feature_rows
        basis = parameters.bases[unit.index][: before + multiple(rank, COEFFICIENT_MULTIPLE)]
        coefficients = basis.new_zeros((product_rows(count), len(basis)))
        if parameters.features is not None and self._entries is not None:
            features = parameters.features.of(*(each[tokens] for each in self._entries))
            # the backend multiplies all by the step
            coefficients[:count, : features.shape[1]] = features / self._steps[tokens, None]
        coefficients[:count, before : before + rank] = symbols.T
        size = self._block_channels(unit)
        for half, columns in unit.split(basis):
            for first in range(0, columns.shape[1], size):
                x = (coefficients @ columns[:, first : first + size])[:count].float()
                self._restore_heads(x, half, (unit.first_channel + first) // self._head_dim, tokens, kv)

    def _restore_heads(
        self, x: torch.Tensor, half: int, first_head: int, tokens: torch.Tensor, kv: torch.Tensor
    ) -> None:
        """Put the keys or values of some heads, ``(tokens, channels)`` in the space of equal harm, in their places."""
        parameters = self._parameters
        # (heads, tokens, head_dim)
        x = x.reshape(len(x), -1, self._head_dim).transpose(0, 1)
        if not half:
            x = torch.bmm(x, parameters.inverse_key_roots[first_head : first_head + len(x)])
        self._backend.restore(
            x,
            first_head,
            self._steps[tokens],
            parameters.factors[half],
            parameters.means[half],
            None if half else self._turns.of(tokens),
            self._coded[tokens],
            kv[:, half],
        )


def project(
    x: tuple[torch.Tensor, torch.Tensor], transform: TransformTables, unit: Unit, tokens: I64, places: Places
) -> torch.Tensor:
    """Coefficients ``(rank, tokens)`` of one unit of some of :func:`forward`'s tokens, as many as the finest has."""
    rank = int(transform.ranks[places.min(), unit.index])
    basis = torch.from_numpy(transform.bases[unit.index][:rank]).float()
    return basis @ unit.of(x)[torch.from_numpy(tokens)].T


def take_off_prediction(
    x: tuple[torch.Tensor, torch.Tensor], transform: TransformTables
) -> npt.NDArray[np.int64] | None:
    """Entry of the codebook for each of :func:`forward`'s tokens, whose prediction is taken off in place.

    None where the profile has no codebook.
    """
    if (codebook := transform.codebook) is None:
        return None
    entries = transform.search.entries([unit.of(x) for unit in transform.units])
    pair = (torch.from_numpy(each) for each in (entries, preceding(entries)))
    features = codebook.features_on(torch.device("cpu")).of(*pair)
    for unit in transform.units:
        predictor = torch.from_numpy(codebook.predictors[unit.index]).float()
        for half, predicted in unit.split(features @ predictor):
            x[half][:, unit.first_channel : unit.end_channel] -= predicted
    return entries


def representable(x: torch.Tensor, y: torch.Tensor, step: float) -> npt.NDArray[np.bool_]:
    """Which of a unit's tokens ``(tokens, channels)`` its coefficients ``(rank, tokens)`` describe.

    No symbol is too large, and no more is lost than a step an element. The first guards the coder's range. The second
    catches what no calibration text had: a token whose energy lies where the level codes nothing.
    """
    in_range = (y.abs() <= step * SYMBOL_LARGEST).all(dim=0)
    lost = x.square().sum(dim=1) - y.square().sum(dim=0)
    mask: npt.NDArray[np.bool_] = (in_range & (lost <= x.shape[1] * step**2)).numpy()
    return mask
