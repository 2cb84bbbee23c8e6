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
from cachegen.kernels.products import TOKEN_MULTIPLE, product_tokens
from cachegen.kernels.uniform import GRID_STEPS, SYMBOL_LARGEST
from cachegen.large_tensor import new_tensor


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
        self._head_dim, self._product_tokens = transform.shape.head_dim, product_tokens(backend.device.type)
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

    def tokens_at_once(self, unit: Unit, memory: int) -> int:
        """How many tokens of a unit :meth:`restore` may be given, if it is to take so many bytes; 64 at least."""
        basis = self._parameters.bases[unit.index]
        # of a product, a block's keys or values follow as float32, before their metric is undone and behind it
        of_product = basis.token_bytes + 2 * torch.float32.itemsize * max(len(block) for block in basis.blocks)
        of_result = torch.float32.itemsize * unit.channels
        if memory < self._product_tokens * (of_product + of_result):
            return max(1, memory // (of_product + of_result) // TOKEN_MULTIPLE) * TOKEN_MULTIPLE
        # whole products
        return (memory - self._product_tokens * of_product) // of_result // self._product_tokens * self._product_tokens

    def restore(
        self,
        symbols: torch.Tensor,
        unit: Unit,
        tokens: torch.Tensor,
        ranks: npt.NDArray[np.int32],
        kv: torch.Tensor,
    ) -> None:
        """Put the keys and values that a unit's symbols ``(coefficients, tokens)`` describe in their places.

        ``tokens`` says which of the coded ones they are, ``ranks`` how many coefficients each has, falling. All
        products come first and then the backend: both have threads, which would wait for each other at every turn.
        """
        heads, count = unit.heads(self._head_dim), len(tokens)
        x = new_tensor((len(unit.halves), heads, count, self._head_dim), torch.float32, self._steps.device)
        for first in range(0, count, self._product_tokens):
            block = slice(first, first + self._product_tokens)
            self._multiply(symbols[: ranks[first], block], unit, tokens[block], x[:, :, block])
        for half, own in zip(unit.halves, x, strict=True):
            self._backend.restore(
                own,
                unit.first_channel // self._head_dim,
                self._steps[tokens],
                self._parameters.factors[half],
                self._parameters.means[half],
                None if half else self._turns.of(tokens),
                self._coded[tokens],
                kv[:, half],
            )

    def _multiply(self, symbols: torch.Tensor, unit: Unit, tokens: torch.Tensor, x: torch.Tensor) -> None:
        """Products of a few tokens' symbols, with the keys' metric undone, ``(halves, heads, tokens, head_dim)``."""
        parameters, features = self._parameters, None
        if parameters.features is not None and self._entries is not None:
            # the backend multiplies all by the step
            features = parameters.features.of(*(each[tokens] for each in self._entries)) / self._steps[tokens, None]
        head, first_head = 0, unit.first_channel // self._head_dim
        for channels in parameters.bases[unit.index].channels(symbols, features):
            of_halves = channels.reshape(len(x), -1, self._head_dim, channels.shape[1]).transpose(2, 3)
            heads = slice(head, head + of_halves.shape[1])
            for half, own, into in zip(unit.halves, of_halves, x[:, heads], strict=True):
                if half:
                    into.copy_(own)
                else:
                    roots = parameters.inverse_key_roots[first_head + heads.start : first_head + heads.stop]
                    torch.bmm(own.float(), roots, out=into)
            head = heads.stop


def project(
    x: tuple[torch.Tensor, torch.Tensor], transform: TransformTables, unit: Unit, tokens: I64, places: Places
) -> torch.Tensor:
    """Coefficients ``(rank, tokens)`` of one unit of some of :func:`forward`'s tokens, as many as the finest has."""
    rank = int(transform.ranks[places.min(), unit.index])
    return transform.bases[unit.index].prefix(rank).project(unit.of(x)[torch.from_numpy(tokens)])


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
