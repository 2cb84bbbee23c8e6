"""What a codec's measured levels say about the points between them: interpolation of bits over log KL."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True)
class Point:
    """One measured encoding."""

    bits: float
    kl: float


@dataclass(frozen=True)
class Comparison:
    """Two codecs at one KL, which both have."""

    kl: float
    bits: float
    other_bits: float

    @property
    def ratio(self) -> float:
        """How many times as large as the first the other one is."""
        return self.other_bits / self.bits


class Curve:
    """A codec's trade of bits for KL: its measured points that no other of its points beats, and lines between them.

    Lines are straight in bits over log KL, as measured curves nearly are; nothing is said beyond the outermost points.

    Parameters
    ----------
    points : iterable of Point
        In any order. A KL of 0 has no logarithm and is left out.
    """

    def __init__(self, points: Iterable[Point]) -> None:
        self.points: list[Point] = []
        for point in sorted(points, key=lambda point: (point.bits, point.kl)):
            if point.kl > 0 and (not self.points or point.kl < self.points[-1].kl):
                self.points.append(point)

    def bits_at(self, kl: float) -> float | None:
        """Bits that the codec needs for a KL, None outside what was measured."""
        for coarse, fine in pairwise(self.points):
            if fine.kl <= kl <= coarse.kl:
                share = math.log(coarse.kl / kl) / math.log(coarse.kl / fine.kl)
                return coarse.bits + share * (fine.bits - coarse.bits)
        return None

    def least_bits(self, kl: float) -> float | None:
        """Bits of the smallest encoding that does no more harm than a KL, between measured ones where it lies there."""
        if self.points and self.points[0].kl <= kl:
            return self.points[0].bits
        return self.bits_at(kl)


def compare_curves(curve: Curve, other: Curve, count: int) -> list[Comparison]:
    """Compare two codecs at ``count`` KLs, evenly spaced in the logarithm over the range that both were measured on."""
    if not curve.points or not other.points:
        return []
    low = max(curve.points[-1].kl, other.points[-1].kl)
    high = min(curve.points[0].kl, other.points[0].kl)
    found = []
    for kl in _spaced(low, high, count) if low < high else ():
        bits, other_bits = curve.bits_at(kl), other.bits_at(kl)
        # rounding can push an end of the range past a curve's own end
        if bits is not None and other_bits is not None:
            found.append(Comparison(kl, bits, other_bits))
    return found


def mean_ratio(comparisons: Sequence[Comparison]) -> float:
    """Geometric mean of the ratios."""
    return math.exp(sum(math.log(comparison.ratio) for comparison in comparisons) / len(comparisons))


def _spaced(low: float, high: float, count: int) -> list[float]:
    inner = [low * (high / low) ** (i / (count - 1)) for i in range(1, count - 1)]
    return [low, *inner, high]
