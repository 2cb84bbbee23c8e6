"""Rotary position embedding as data: enough to take it off stored keys and to put it back, without a model."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch

from cachegen.errors import FormatError, UnsupportedModelError

MAX_KINDS = 64
# Keeps angles, and every sum of products of parameters, in range, whatever the file says.
LARGEST_PARAMETER = 2.0**40


@dataclass(frozen=True)
class Rotary:
    """How the keys of each layer turn with the position of their token.

    Element ``j`` of a key at position ``p`` is ``k[j] cos(p f[j]) + k[partner[j]] sin(p f[j])``, where ``f`` has one
    sign in the first and the other in the second element of a pair. An element that does not turn has frequency 0
    and is its own partner. A factor on cosines and sines, as YaRN has one, is left in the keys.

    Parameters
    ----------
    of_layer : uint8 array, ``(num_layers,)``
        Which of the kinds below a layer has: models may mix local, global and no rotation.
    frequencies : float32 array, ``(kinds, head_dim)``
        Radians a token.
    partners : uint16 array, ``(kinds, head_dim)``
        The other element of the pair.
    max_tokens : int
        Positions from here on turn otherwise (dynamic scaling); 0 where there is no such limit.

    Raises
    ------
    FormatError
        The arrays are not such a description.
    """

    of_layer: npt.NDArray[np.uint8]
    frequencies: npt.NDArray[np.float32]
    partners: npt.NDArray[np.uint16]
    max_tokens: int = 0

    def __post_init__(self) -> None:
        wanted = {"of_layer": np.uint8, "frequencies": np.float32, "partners": np.uint16}
        for name, dtype in wanted.items():
            if getattr(self, name).dtype != dtype:
                raise FormatError(f"rotary {name} is {getattr(self, name).dtype}, not {dtype.__name__}")
        if self.frequencies.ndim != 2 or self.frequencies.shape != self.partners.shape or self.of_layer.ndim != 1:
            raise FormatError(f"rotary frequencies are {self.frequencies.shape}, partners {self.partners.shape}")
        kinds, head_dim = self.frequencies.shape
        if not 1 <= kinds <= MAX_KINDS or self.of_layer.size == 0 or int(self.of_layer.max()) >= kinds:
            raise FormatError(f"rotary has {kinds} kinds, must have 1..{MAX_KINDS}, and all that its layers name")
        if not isinstance(self.max_tokens, int) or self.max_tokens < 0:
            raise FormatError(f"rotary max_tokens is {self.max_tokens!r}")
        # written so that NaN fails too
        if not bool((np.abs(self.frequencies) <= LARGEST_PARAMETER).all()):
            raise FormatError(f"rotary frequencies hold a value beyond {LARGEST_PARAMETER}")
        self._check_pairs(head_dim)

    def _check_pairs(self, head_dim: int) -> None:
        if int(self.partners.max()) >= head_dim:
            raise FormatError(f"rotary partner {int(self.partners.max())} is outside a head of {head_dim}")
        partners = self.partners.astype(np.int64)
        back = np.take_along_axis(partners, partners, axis=1)
        mirrored = np.take_along_axis(self.frequencies, partners, axis=1)
        if not ((back == np.arange(head_dim)).all() and (mirrored == -self.frequencies).all()):
            raise FormatError("rotary pairs do not turn in one plane each")

    @property
    def kinds(self) -> int:
        """Number of different rotations."""
        return int(self.frequencies.shape[0])

    def check_span(self, end_token: int) -> None:
        """Refuse tokens at positions where the rotation depends on the sequence's length."""
        if 0 < self.max_tokens < end_token:
            raise UnsupportedModelError(
                f"transform: the model's rotary scaling changes from token {self.max_tokens} on, and this context "
                f"reaches token {end_token}"
            )

    def apply(self, keys: torch.Tensor, positions: npt.NDArray[np.int64]) -> torch.Tensor:
        """Keys ``(num_layers, tokens, kv_heads, head_dim)`` turned by positions ``(tokens,)``, negative ones back.

        Float32 in and out; orthogonal, so that the opposite positions undo it.
        """
        turned = torch.empty_like(keys)
        for kind in range(self.kinds):
            cos, sin = self.factors(kind, positions)
            for layer in np.flatnonzero(self.of_layer == kind):
                turned[layer] = self.turn(keys[layer], kind, (cos[:, None], sin[:, None]))
        return turned

    def factors(self, kind: int, positions: npt.NDArray[np.int64]) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosines and signed sines of a kind at positions, ``(tokens, head_dim)`` each."""
        angles = positions[:, None].astype(np.float64) * self.frequencies[kind].astype(np.float64)
        cos, sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
        return torch.from_numpy(cos), torch.from_numpy(sin)

    def turn(self, keys: torch.Tensor, kind: int, factors: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        """Keys ``(..., head_dim)`` turned by factors that broadcast to them."""
        cos, sin = factors
        return (keys * cos).addcmul_(keys.index_select(-1, self._partner_index[kind]), sin)

    @cached_property
    def _partner_index(self) -> torch.Tensor:
        return torch.from_numpy(self.partners.astype(np.int64))


def no_rotary(num_layers: int, head_dim: int) -> Rotary:
    """For keys that do not turn with their position."""
    return Rotary(
        np.zeros(num_layers, dtype=np.uint8),
        np.zeros((1, head_dim), dtype=np.float32),
        np.arange(head_dim, dtype=np.uint16)[None],
    )
