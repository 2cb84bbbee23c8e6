"""Units of the ``transform`` codec: the channels that one basis spans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch

from cachegen.kv import KVShape


@dataclass(frozen=True)
class Grouping:
    """How channels make units.

    Parameters
    ----------
    unit_channels : int
        A unit is as many KV heads, layer after layer, as stay within so many channels.
    joint : bool
        Whether a unit has the keys and the values of its heads, or either.
    """

    unit_channels: int
    joint: bool


# A layer's keys and values are made from the same hidden state, so that much of the one says much of the other.
JOINT = Grouping(5760, True)
# What profiles had before that; their chunks are still decoded.
APART = Grouping(2880, False)


@dataclass(frozen=True)
class Unit:
    """Channels that one basis spans, those of keys first.

    Parameters
    ----------
    index : int
        Among a model's.
    halves : tuple of int
        0 where it has keys, 1 where it has values.
    first_channel, end_channel : int
        Of all layers' keys, and of all values, counted layer-major; whole heads.
    """

    index: int
    halves: tuple[int, ...]
    first_channel: int
    end_channel: int

    @property
    def channels(self) -> int:
        """Size of the basis."""
        return len(self.halves) * (self.end_channel - self.first_channel)

    def heads(self, head_dim: int) -> int:
        """KV heads of which it has the keys, or the values, or both."""
        return (self.end_channel - self.first_channel) // head_dim

    def of(self, x: Sequence[torch.Tensor] | torch.Tensor) -> torch.Tensor:
        """The unit's channels of keys and values ``(..., layers * channels)`` each."""
        return torch.cat([x[half][..., self.first_channel : self.end_channel] for half in self.halves], dim=-1)

    def split(self, x: torch.Tensor) -> list[tuple[int, torch.Tensor]]:
        """Views of the unit's channels ``(..., channels)``: which half, and its own."""
        size = self.end_channel - self.first_channel
        return [(half, x[..., at * size : (at + 1) * size]) for at, half in enumerate(self.halves)]


def runs_of_heads(heads: int, most: int) -> list[int]:
    """Where runs of so many heads at most, or one, begin and where the last ends: as few and as equal as can be."""
    count = -(-heads // max(1, most))
    return [heads * i // count for i in range(count + 1)]


def units_of(shape: KVShape, grouping: Grouping = JOINT) -> tuple[Unit, ...]:
    """Units of a model, as equal as whole heads allow; where they are apart, those of keys first.

    Only an ablation has other groupings than ``JOINT`` and ``APART``.
    """
    heads = shape.num_layers * shape.num_kv_heads
    kinds = [(0, 1)] if grouping.joint else [(0,), (1,)]
    runs = runs_of_heads(heads, grouping.unit_channels // (len(kinds[0]) * shape.head_dim))
    spans = [(halves, run) for halves in kinds for run in pairwise(runs)]
    return tuple(
        Unit(index, halves, first * shape.head_dim, end * shape.head_dim)
        for index, (halves, (first, end)) in enumerate(spans)
    )
