"""The Triton backend: copies to the device and back around the functions that work on its tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import torch

from cachegen.errors import InvalidInputError
from cachegen.kernels import (
    anchor,
    triton_anchor,
    triton_histogram,
    triton_prediction,
    triton_restore,
    triton_streams,
    triton_uniform,
)
from cachegen.kernels.base import F32, CodedStreams, PlacedStream, Quantized, Symbols, Turns
from cachegen.kernels.prediction import Predictions
from cachegen.kernels.tables import FrequencyTables
from cachegen.kernels.triton_jit import INTERPRETED
from cachegen.kernels.triton_tables import upload_tables
from cachegen.kernels.workers import work_in_slices


class TritonBackend:
    """See ``Backend``; InvalidInputError where there is no GPU and Triton does not interpret its kernels."""

    def __init__(self) -> None:
        if not INTERPRETED and not torch.cuda.is_available():
            raise InvalidInputError("backend 'triton' needs a CUDA device, or TRITON_INTERPRET=1 from the start")

    @property
    def device(self) -> torch.device:
        """See ``Backend``; the GPU that is PyTorch's current one."""
        return torch.device("cpu") if INTERPRETED else torch.device("cuda", torch.cuda.current_device())

    def quantize_anchors(self, x: F32) -> tuple[npt.NDArray[np.uint16], Symbols]:
        """See ``Backend``."""
        scale_bits, symbols = triton_anchor.quantize_anchors(self._values(x))
        return scale_bits.cpu().numpy(), symbols.cpu().numpy()

    def quantize(self, x: F32, level: int) -> Quantized:
        """See ``Backend``."""
        values = self._values(x)
        scale_bits, anchors = triton_anchor.quantize_anchors(values[:, :: anchor.GROUP_TOKENS])
        totals = triton_anchor.sum_squares(values, scale_bits).cpu().numpy()
        sigmas = anchor.sigmas_of_squares(totals, anchor.num_deltas(x.shape[1]) * x.shape[2])
        deltas = triton_anchor.quantize_deltas(values, scale_bits, anchors, self._put(anchor.bins(sigmas, level)))
        return Quantized(scale_bits.cpu().numpy(), anchors.cpu().numpy(), sigmas, deltas.cpu().numpy())

    def dequantize(self, quantized: Quantized, row_bins: F32, out: torch.Tensor) -> None:
        """See ``Backend``."""
        values = torch.empty_like(out, device=self.device) if out.device.type != self.device.type else out
        triton_anchor.reconstruct(
            self._put(quantized.scale_bits),
            self._put(quantized.anchors),
            self._put(row_bins),
            self._put(quantized.deltas),
            values,
        )
        if values is not out:
            out.copy_(values)

    def quantize_uniform(self, y: F32, step: float) -> npt.NDArray[np.int32]:
        """See ``Backend``."""
        symbols: npt.NDArray[np.int32] = triton_uniform.quantize(self._put(y), step).cpu().numpy()
        return symbols

    def count(self, symbols: Symbols, counts: npt.NDArray[np.uint32]) -> None:
        """See ``Backend``."""
        on_device = self._put(counts)
        triton_histogram.count(self._put(symbols), on_device)
        counts[:] = on_device.cpu().numpy()

    def encode_streams(self, symbols: Symbols, tables: FrequencyTables) -> CodedStreams:
        """See ``Backend``."""
        uploaded = upload_tables([tables], self.device)
        rows, _, num_tokens = symbols.shape
        plan = triton_streams.plan_rows(uploaded, np.arange(rows), np.full(rows, num_tokens))
        streams = triton_streams.encode(self._put(symbols).flatten(), plan, uploaded)
        return triton_streams.download_streams(streams, int(plan.lanes[0]))

    def decode_streams(self, coded: CodedStreams, num_tokens: int, tables: FrequencyTables, rows: slice) -> Symbols:
        """See ``Backend``."""
        first, end, _ = rows.indices(len(coded.states))
        uploaded = upload_tables([tables], self.device)
        lanes = np.full(end - first, coded.states.shape[1], dtype=np.int64)
        plan = triton_streams.plan_rows(uploaded, np.arange(first, end), np.full(end - first, num_tokens), lanes)
        streams = triton_streams.upload_streams([coded], self.device).part(first, end)
        symbols = triton_streams.decode(streams, plan, uploaded, lambda row: f"row {first + row}")
        decoded: Symbols = symbols.cpu().numpy().reshape(end - first, tables.channels, num_tokens)
        return decoded

    def decode_placed(self, streams: Sequence[PlacedStream], symbols: torch.Tensor, memory: int) -> None:
        """See ``Backend``; as many streams in one launch as fit."""
        first_tokens = [stream.tokens.indices(symbols.shape[1])[0] for stream in streams]
        counts = [len(range(*stream.tokens.indices(symbols.shape[1]))) for stream in streams]
        largest = max(stream.tables.channels * count for stream, count in zip(streams, counts, strict=True))

        def decode(which: slice) -> None:
            at, part = 0, streams[which]
            flat = self._decode_rows(part, np.array(counts[which], dtype=np.int64))
            for stream, first_token, count in zip(part, first_tokens[which], counts[which], strict=True):
                end, size = stream.first + stream.tables.channels, stream.tables.channels * count
                into = symbols[stream.first : end, first_token : first_token + count]
                into.copy_(flat[at : at + size].view(into.shape))
                at += size

        self.each(decode, len(streams), largest * torch.int32.itemsize, memory)

    def _decode_rows(self, streams: Sequence[PlacedStream], counts: npt.NDArray[np.int64]) -> torch.Tensor:
        """Flat symbols of streams of one row each."""
        uploaded = upload_tables([stream.tables for stream in streams], self.device)
        coded = [stream.read() for stream in streams]
        lanes = np.array([part.states.shape[1] for part in coded], dtype=np.int64)
        plan = triton_streams.plan_rows(uploaded, np.arange(len(streams)), counts, lanes)
        on_device = triton_streams.upload_streams(coded, self.device)
        return triton_streams.decode(on_device, plan, uploaded, lambda row: streams[row].name)

    def add_predictions(self, symbols: torch.Tensor, predictions: Predictions) -> None:
        """See ``Backend``."""
        parts = (self._put(part) for part in (predictions.columns, predictions.weights, predictions.ranks))
        triton_prediction.add_predictions(symbols, *parts)

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
        triton_restore.restore(x, first_head, steps, factors, means, turns, coded, out)

    def each(self, work: Callable[[slice], None], count: int, item_bytes: int, memory: int) -> None:
        """See ``Backend``; as many items in one slice as fit."""
        work_in_slices(work, count, max(1, memory // item_bytes))

    def _put(self, array: npt.NDArray[np.generic]) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self.device)

    def _values(self, x: F32) -> torch.Tensor:
        """Rows of one head, since a backend's caller has taken the heads together."""
        return self._put(x)[:, :, None]
