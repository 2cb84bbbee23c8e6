"""The reference backend: the codec's plain NumPy stages, for tests and for reading."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import torch

from cachegen.errors import FormatError
from cachegen.kernels import anchor, prediction, rans, uniform
from cachegen.kernels.base import F32, CodedStreams, PlacedStream, Quantized, Symbols, Turns
from cachegen.kernels.prediction import Predictions
from cachegen.kernels.scales import round_up_scales
from cachegen.kernels.tables import ALPHABET, ESCAPE, VALUE_OFFSET, FrequencyTables
from cachegen.kernels.workers import work_in_slices


class ReferenceBackend:
    """See ``Backend``."""

    device = torch.device("cpu")

    def quantize_anchors(self, x: F32) -> tuple[npt.NDArray[np.uint16], Symbols]:
        """See ``Backend``."""
        scale_bits = round_up_scales(np.abs(x).max(axis=2), anchor.ANCHOR_LARGEST)
        return scale_bits, anchor.quantize_anchors(x, scale_bits).transpose(0, 2, 1)

    def quantize(self, x: F32, level: int) -> Quantized:
        """See ``Backend``."""
        scale_bits, anchors = self.quantize_anchors(x[:, :: anchor.GROUP_TOKENS])
        delta = anchor.deltas(x, anchor.anchor_values(anchors.transpose(0, 2, 1), scale_bits))
        sigmas = anchor.sigmas(delta)
        deltas = anchor.quantize_deltas(delta, anchor.bins(sigmas, level))
        return Quantized(scale_bits, anchors, sigmas, deltas.transpose(0, 2, 1))

    def dequantize(self, quantized: Quantized, row_bins: F32, out: torch.Tensor) -> None:
        """See ``Backend``."""
        x = anchor.reconstruct(
            quantized.anchors.transpose(0, 2, 1),
            quantized.scale_bits,
            quantized.deltas.transpose(0, 2, 1),
            row_bins,
            torch.finfo(out.dtype).max,
        )
        out.copy_(torch.from_numpy(x).view(out.shape))

    def quantize_uniform(self, y: F32, step: float) -> npt.NDArray[np.int32]:
        """See ``Backend``."""
        return uniform.quantize(y, step)

    def count(self, symbols: Symbols, counts: npt.NDArray[np.uint32]) -> None:
        """See ``Backend``."""
        indices = symbols.astype(np.int64) + VALUE_OFFSET
        indices = np.where((indices >= 0) & (indices < ESCAPE), indices, ESCAPE)
        for row, channel in np.ndindex(*symbols.shape[:2]):
            counts[row, channel] += np.bincount(indices[row, channel], minlength=ALPHABET).astype(counts.dtype)

    def encode_streams(self, symbols: Symbols, tables: FrequencyTables) -> CodedStreams:
        """See ``Backend``."""
        return rans.encode_streams(symbols, tables)

    def decode_streams(self, coded: CodedStreams, num_tokens: int, tables: FrequencyTables, rows: slice) -> Symbols:
        """See ``Backend``."""
        return rans.decode_streams(coded, num_tokens, tables, rows)

    def decode_placed(self, streams: Sequence[PlacedStream], symbols: torch.Tensor, memory: int) -> None:
        """See ``Backend``; one stream after the other."""
        del memory
        for stream in streams:
            into = symbols.numpy()[stream.first : stream.first + stream.tables.channels, stream.tokens]
            try:
                into[...] = rans.decode_streams(stream.read(), into.shape[1], stream.tables, slice(0, 1))[0]
            except FormatError as error:
                raise FormatError(f"{stream.name}: {error}") from error

    def add_predictions(self, symbols: torch.Tensor, predictions: Predictions) -> None:
        """See ``Backend``."""
        prediction.add_predictions(symbols.numpy(), predictions)

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
        """See ``Backend``; head by head."""
        finite = torch.finfo(out.dtype)
        for head, part in enumerate(x, start=first_head):
            values = means[head] + factors[head] * steps[:, None] * part
            if turns is not None:
                kind = int(turns.kind_of_head[head])
                turned = values[:, turns.partners[kind].long()] * turns.sin[kind]
                values = values * turns.cos[kind] + turned
            layer, kv_head = divmod(head, out.shape[2])
            out[layer, coded, kv_head] = values.clamp(finite.min, finite.max).to(out.dtype)

    def each(self, work: Callable[[slice], None], count: int, item_bytes: int, memory: int) -> None:
        """See ``Backend``; one slice after the other."""
        work_in_slices(work, count, max(1, memory // item_bytes))
