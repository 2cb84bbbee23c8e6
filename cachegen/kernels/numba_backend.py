"""The Numba backend: allocates, calls the compiled kernels, and holds no lock of the interpreter meanwhile.

Kernels run on the calling thread alone: Numba's default threading layer must not be entered from two threads
at once, and a loader decodes in a worker thread beside others.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cachegen.kernels import anchor, numba_quantize, numba_rans, numba_uniform
from cachegen.kernels.base import F32, CodedStreams, Quantized, Symbols
from cachegen.kernels.scales import round_up_scales, scale_values
from cachegen.kernels.tables import FrequencyTables


class NumbaBackend:
    """See ``Backend``."""

    def quantize_anchors(self, x: F32) -> tuple[npt.NDArray[np.uint16], Symbols]:
        """See ``Backend``."""
        x = np.ascontiguousarray(x)
        rows, groups, channels = x.shape
        maxima = np.empty((rows, groups), dtype=np.float32)
        numba_quantize.maxima_kernel(x, maxima)
        scale_bits = round_up_scales(maxima, anchor.ANCHOR_LARGEST)
        symbols = np.empty((rows, channels, groups), dtype=np.int32)
        numba_quantize.anchors_kernel(x, scale_values(scale_bits).astype(np.float64), symbols)
        return scale_bits, symbols

    def quantize(self, x: F32, level: int) -> Quantized:
        """See ``Backend``."""
        x = np.ascontiguousarray(x)
        rows, num_tokens, channels = x.shape
        num_deltas = anchor.num_deltas(num_tokens)
        scale_bits, anchors = self.quantize_anchors(x[:, :: anchor.GROUP_TOKENS])
        scales = scale_values(scale_bits).astype(np.float64)
        totals = np.empty(rows, dtype=np.float64)
        numba_quantize.squares_kernel(x, scales, anchor.GROUP_TOKENS, totals)
        sigmas = anchor.sigmas_of_squares(totals, num_deltas * channels)
        deltas = np.empty((rows, channels, num_deltas), dtype=np.int32)
        numba_quantize.deltas_kernel(x, scales, anchor.bins(sigmas, level), anchor.GROUP_TOKENS, deltas)
        return Quantized(scale_bits, anchors, sigmas, deltas)

    def dequantize(self, quantized: Quantized, level: int, largest: float) -> F32:
        """See ``Backend``."""
        rows, channels, groups = quantized.anchors.shape
        x = np.empty((rows, groups + quantized.deltas.shape[2], channels), dtype=np.float32)
        numba_quantize.reconstruct_kernel(
            quantized.anchors,
            scale_values(quantized.scale_bits).astype(np.float64),
            quantized.deltas,
            anchor.bins(quantized.sigmas, level),
            anchor.GROUP_TOKENS,
            largest,
            x,
        )
        return x

    def quantize_uniform(self, y: F32, step: float) -> npt.NDArray[np.int32]:
        """See ``Backend``."""
        symbols = np.empty(y.shape, dtype=np.int32)
        numba_uniform.quantize_kernel(np.ascontiguousarray(y), step, symbols)
        return symbols

    def count(self, symbols: Symbols, counts: npt.NDArray[np.uint32]) -> None:
        """See ``Backend``."""
        numba_rans.count_kernel(np.ascontiguousarray(symbols), counts)

    def encode_streams(self, symbols: Symbols, tables: FrequencyTables) -> CodedStreams:
        """See ``Backend``."""
        return numba_rans.encode_streams(symbols, tables)

    def decode_streams(self, coded: CodedStreams, num_tokens: int, tables: FrequencyTables) -> Symbols:
        """See ``Backend``."""
        return numba_rans.decode_streams(coded, num_tokens, tables)
