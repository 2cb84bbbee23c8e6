"""Token groups, anchors and deltas of the ``cachegen`` codec, in plain NumPy: the reference of every backend.

CacheGen (SIGCOMM'24), section 5.2: the first token of each group of ten is the anchor, coded alone in 8 bits;
the others are coded as the difference to it, in bins that widen with depth. Shapes: ``x (rows, tokens,
channels)`` where a row is a (layer, K/V) pair, layer-major; ``g`` groups, ``d`` deltas.

All arithmetic is float64 on float32 inputs in a stated order, and every product of an integer and a bin is
exact, so that fused multiply-add cannot change a result: backends agree bit for bit.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cachegen.kernels.scales import scale_values

GROUP_TOKENS = 10
ANCHOR_LARGEST = 127
# Bins in units of sigma for the first, middle and last third of the layers.
THIRD_BINS = (0.5, 1.0, 1.5)
# Finest level first; 1.0 is the paper's default level.
LEVEL_MULTIPLIERS = (0.25, 0.4, 0.7, 1.0, 1.5)
# |delta / bin| is at most 8 to 64 times the root of a row's element count, so no chunk within the limits of
# kv.py comes near this; below it, the product with a 24-bit bin is exact in float64.
DELTA_LARGEST = 1 << 28
# Bins are at most 2.25 sigma; the cap keeps them finite, the floor keeps the quotient in range.
SIGMA_LARGEST = np.float32(2.0**125)
SIGMA_SMALLEST = np.float32(2.0**-120)

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]


def num_groups(num_tokens: int) -> int:
    """Token groups of a chunk, the short tail included; also its number of anchors."""
    return -(-num_tokens // GROUP_TOKENS)


def num_deltas(num_tokens: int) -> int:
    """Tokens of a chunk that are no anchors."""
    return num_tokens - num_groups(num_tokens)


def delta_tokens(num_tokens: int) -> npt.NDArray[np.int64]:
    """Indices of the tokens that are coded as deltas, ``(d,)``."""
    return np.flatnonzero(np.arange(num_tokens) % GROUP_TOKENS)


def bins(sigmas: F32, level: int, third_bins: tuple[float, float, float] = THIRD_BINS) -> F32:
    """Bin of each row: sigma times the bin of its layer's third times the level's multiplier, ``(rows,)``.

    Thirds are as equal as the layer count allows, the earlier ones longer. Only an ablation has other ``third_bins``.
    """
    num_layers = len(sigmas) // 2
    layers = np.arange(len(sigmas)) // 2
    thirds = np.asarray(third_bins)[layers * 3 // num_layers]
    return (sigmas.astype(np.float64) * (thirds * LEVEL_MULTIPLIERS[level])).astype(np.float32)


def anchor_values(symbols: npt.NDArray[np.int32], scale_bits: npt.NDArray[np.uint16]) -> F64:
    """Dequantized anchors ``(rows, g, channels)``, exact in float64."""
    return symbols * scale_values(scale_bits).astype(np.float64)[:, :, None]


def quantize_anchors(x: F32, scale_bits: npt.NDArray[np.uint16]) -> npt.NDArray[np.int32]:
    """Anchor symbols in -127..127 of the anchor tokens ``x (rows, g, channels)``, rounded half to even."""
    scales = scale_values(scale_bits).astype(np.float64)[:, :, None]
    return np.rint(x / np.where(scales > 0, scales, 1.0)).astype(np.int32)


def deltas(x: F32, anchors: F64) -> F64:
    """Difference of every other token to its group's dequantized anchor, ``(rows, d, channels)``."""
    tokens = delta_tokens(x.shape[1])
    return x[:, tokens].astype(np.float64) - anchors[:, tokens // GROUP_TOKENS]


def sigmas(delta: F64) -> F32:
    """Root mean square of each row's deltas, ``(rows,)``; 0 only where all deltas are 0.

    About zero and not about the mean, since then no quotient can exceed the root of the element count,
    whatever the data. Summed over tokens for each channel, then over channels, in that order.
    """
    per_channel = np.zeros((delta.shape[0], delta.shape[2]))
    for token in range(delta.shape[1]):
        per_channel += delta[:, token] * delta[:, token]
    return sigmas_of_squares(np.cumsum(per_channel, axis=1)[:, -1], delta.shape[1] * delta.shape[2])


def sigmas_of_squares(totals: F64, count: int) -> F32:
    """Sigma of each row from the sum of its ``count`` squared deltas; 0 without deltas."""
    roots = np.clip(np.sqrt(totals / max(count, 1)), SIGMA_SMALLEST, SIGMA_LARGEST)
    return np.where(totals > 0, roots, 0.0).astype(np.float32)


def quantize_deltas(delta: F64, row_bins: F32) -> npt.NDArray[np.int32]:
    """Delta symbols ``(rows, d, channels)``, rounded half to even; a row with bin 0 has only zeros."""
    divisors = np.where(row_bins > 0, row_bins, np.float32(1)).astype(np.float64)[:, None, None]
    return np.rint(delta / divisors).astype(np.int32)


def reconstruct(
    anchor_symbols: npt.NDArray[np.int32],
    scale_bits: npt.NDArray[np.uint16],
    delta_symbols: npt.NDArray[np.int32],
    row_bins: F32,
    largest: float,
) -> F32:
    """Values ``(rows, tokens, channels)`` clamped to ``+-largest`` from the symbols; inverse of the above."""
    anchors = anchor_values(anchor_symbols, scale_bits)
    num_tokens = anchors.shape[1] + delta_symbols.shape[1]
    x = np.empty((anchors.shape[0], num_tokens, anchors.shape[2]))
    x[:, ::GROUP_TOKENS] = anchors
    tokens = delta_tokens(num_tokens)
    steps = row_bins.astype(np.float64)[:, None, None]
    x[:, tokens] = anchors[:, tokens // GROUP_TOKENS] + delta_symbols * steps
    return np.clip(x, -largest, largest).astype(np.float32)
