"""The Numba backend: allocates, calls the compiled kernels, and holds no lock of the interpreter meanwhile.

Threads share the rows of a chunk and nothing else: each writes to memory of its own. They are Python's and not Numba's,
whose default threading layer must not be entered from two threads at once, and a loader decodes in a worker thread
beside others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import torch

from cachegen.kernels import anchor, cast, numba_prediction, numba_quantize, numba_rans, numba_restore, numba_uniform
from cachegen.kernels.base import F32, CodedStreams, PlacedStream, Quantized, Symbols, Turns
from cachegen.kernels.prediction import Predictions
from cachegen.kernels.scales import round_up_scales, scale_values
from cachegen.kernels.tables import FrequencyTables
from cachegen.kernels.workers import map_in_threads


class NumbaBackend:
    """See ``Backend``."""

    device = torch.device("cpu")

    def quantize_anchors(self, x: F32) -> tuple[npt.NDArray[np.uint16], Symbols]:
        """See ``Backend``."""
        x = np.ascontiguousarray(x)
        rows, groups, channels = x.shape
        scale_bits = np.empty((rows, groups), dtype=np.uint16)
        symbols = np.empty((rows, channels, groups), dtype=np.int32)

        def quantize_row(row: int) -> None:
            only = slice(row, row + 1)
            maxima = np.empty((1, groups), dtype=np.float32)
            numba_quantize.maxima_kernel(x[only], maxima)
            scale_bits[only] = round_up_scales(maxima, anchor.ANCHOR_LARGEST)
            scales = scale_values(scale_bits[only]).astype(np.float64)
            numba_quantize.anchors_kernel(x[only], scales, symbols[only])

        map_in_threads(quantize_row, range(rows))
        return scale_bits, symbols

    def quantize(self, x: F32, level: int) -> Quantized:
        """See ``Backend``."""
        x = np.ascontiguousarray(x)
        rows, num_tokens, channels = x.shape
        num_deltas = anchor.num_deltas(num_tokens)
        scale_bits, anchors = self.quantize_anchors(x[:, :: anchor.GROUP_TOKENS])
        scales = scale_values(scale_bits).astype(np.float64)

        def sum_squares(row: int) -> float:
            only = slice(row, row + 1)
            total = np.empty(1, dtype=np.float64)
            numba_quantize.squares_kernel(x[only], scales[only], anchor.GROUP_TOKENS, total)
            return float(total[0])

        totals = np.array(map_in_threads(sum_squares, range(rows)))
        sigmas = anchor.sigmas_of_squares(totals, num_deltas * channels)
        bins = anchor.bins(sigmas, level)
        deltas = np.empty((rows, channels, num_deltas), dtype=np.int32)

        def quantize_row(row: int) -> None:
            only = slice(row, row + 1)
            numba_quantize.deltas_kernel(x[only], scales[only], bins[only], anchor.GROUP_TOKENS, deltas[only])

        map_in_threads(quantize_row, range(rows))
        return Quantized(scale_bits, anchors, sigmas, deltas)

    def dequantize(self, quantized: Quantized, row_bins: F32, out: torch.Tensor) -> None:
        """See ``Backend``."""
        x = np.empty((*out.shape[:2], out.shape[2] * out.shape[3]), dtype=np.float32)
        numba_quantize.reconstruct_kernel(
            quantized.anchors,
            scale_values(quantized.scale_bits).astype(np.float64),
            quantized.deltas,
            row_bins,
            anchor.GROUP_TOKENS,
            torch.finfo(out.dtype).max,
            x,
        )
        cast.store(x, out)

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

    def decode_streams(self, coded: CodedStreams, num_tokens: int, tables: FrequencyTables, rows: slice) -> Symbols:
        """See ``Backend``."""
        return numba_rans.decode_streams(coded, num_tokens, tables, rows)

    def decode_placed(self, streams: Sequence[PlacedStream], symbols: torch.Tensor, memory: int) -> None:
        """See ``Backend``; takes no memory to speak of."""
        del memory
        into = symbols.numpy()
        map_in_threads(lambda stream: numba_rans.decode_placed(stream, into), streams)

    def add_predictions(self, symbols: torch.Tensor, predictions: Predictions) -> None:
        """See ``Backend``."""
        numba_prediction.add_predictions(symbols.numpy(), predictions)

    def restore(
        self,
        x: torch.Tensor,
        first_head: int,
        steps: torch.Tensor,
        factors: torch.Tensor,
        means: torch.Tensor,
        turns: Turns | None,
        coded: torch.Tensor,
        out: torch.Tensor,
    ) -> None:
        """See ``Backend``."""
        numba_restore.restore(x, first_head, steps, factors, means, turns, coded, out)

    def each(self, work: Callable[[slice], None], count: int, item_bytes: int, memory: int) -> None:
        """See ``Backend``; item by item, on all threads."""
        items = [slice(i, i + 1) for i in range(count)]
        map_in_threads(work, items, max(1, memory // item_bytes))
