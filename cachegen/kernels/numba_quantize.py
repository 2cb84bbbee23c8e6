"""Anchors and deltas for CPUs: the Numba twin of ``cachegen.kernels.anchor``, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from cachegen.kernels.jit import kernel

Array = npt.NDArray[Any]


@kernel
def maxima_kernel(x: Array, maxima: Array) -> None:
    """Largest magnitude of each token, ``maxima (rows, groups)``."""
    rows, groups = maxima.shape
    for row in range(rows):
        for group in range(groups):
            largest = np.float32(0)
            for value in x[row, group]:
                largest = max(largest, abs(value))
            maxima[row, group] = largest


@kernel
def _dequantized_anchor(anchor: Array, scale: float, out: Array) -> None:
    """Values of one anchor ``(channels,)`` after its trip through 8 bits, exact in float64."""
    if scale == 0:
        out[:] = 0
        return
    for channel in range(len(anchor)):
        out[channel] = np.rint(np.float64(anchor[channel]) / scale) * scale


@kernel
def anchors_kernel(x: Array, scales: Array, symbols: Array) -> None:
    """Anchor symbols ``(rows, channels, groups)``."""
    rows, channels, groups = symbols.shape
    for row in range(rows):
        for group in range(groups):
            scale = scales[row, group]
            anchor = x[row, group]
            for channel in range(channels):
                quotient = np.float64(anchor[channel]) / scale if scale > 0 else 0.0
                symbols[row, channel, group] = np.int32(np.rint(quotient))


@kernel
def squares_kernel(x: Array, scales: Array, group_tokens: int, totals: Array) -> None:
    """Sum of squared deltas of each row, over tokens for each channel first; ``totals (rows,)``."""
    rows, num_tokens, channels = x.shape
    anchor = np.empty(channels, dtype=np.float64)
    per_channel = np.empty(channels, dtype=np.float64)
    for row in range(rows):
        per_channel[:] = 0
        for token in range(num_tokens):
            if token % group_tokens == 0:
                group = token // group_tokens
                _dequantized_anchor(x[row, token], scales[row, group], anchor)
                continue
            values = x[row, token]
            for channel in range(channels):
                delta = np.float64(values[channel]) - anchor[channel]
                per_channel[channel] += delta * delta
        total = 0.0
        for channel in range(channels):
            total += per_channel[channel]
        totals[row] = total


@kernel
def deltas_kernel(x: Array, scales: Array, bins: Array, group_tokens: int, symbols: Array) -> None:
    """Delta symbols ``(rows, channels, deltas)``."""
    rows, num_tokens, channels = x.shape
    anchor = np.empty(channels, dtype=np.float64)
    for row in range(rows):
        step = np.float64(bins[row]) if bins[row] > 0 else np.float64(1)
        at = 0
        for token in range(num_tokens):
            if token % group_tokens == 0:
                group = token // group_tokens
                _dequantized_anchor(x[row, token], scales[row, group], anchor)
                continue
            values = x[row, token]
            for channel in range(channels):
                delta = np.float64(values[channel]) - anchor[channel]
                symbols[row, channel, at] = np.int32(np.rint(delta / step))
            at += 1


@kernel
def reconstruct_kernel(
    anchors: Array, scales: Array, deltas: Array, bins: Array, group_tokens: int, largest: float, x: Array
) -> None:
    """Tensor ``x (rows, tokens, channels)`` from anchor and delta symbols, clamped to ``+-largest``."""
    rows, num_tokens, channels = x.shape
    anchor = np.empty(channels, dtype=np.float64)
    for row in range(rows):
        step = np.float64(bins[row])
        at = 0
        for token in range(num_tokens):
            out = x[row, token]
            if token % group_tokens == 0:
                group = token // group_tokens
                for channel in range(channels):
                    anchor[channel] = anchors[row, channel, group] * scales[row, group]
                    out[channel] = np.float32(min(max(anchor[channel], -largest), largest))
                continue
            for channel in range(channels):
                value = anchor[channel] + deltas[row, channel, at] * step
                out[channel] = np.float32(min(max(value, -largest), largest))
            at += 1
