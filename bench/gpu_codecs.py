"""Batches of chunks coded wholly on a device: what the library's GPU kernels are launched for, without containers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from cachegen.codecs.base import CodecTables
from cachegen.codecs.equal_harm import Backward
from cachegen.codecs.token_groups import TokenGroup
from cachegen.codecs.transform import transform_of
from cachegen.codecs.units import Unit
from cachegen.kernels import anchor, get_backend, triton_anchor, triton_streams, triton_uniform
from cachegen.kernels.base import Turns
from cachegen.kernels.triton_streams import DeviceStreams, RowPlan
from cachegen.kernels.triton_tables import upload_tables
from cachegen.kernels.uniform import GRID_STEPS, LEVEL_PLACES
from cachegen.kv import KVShape

# Symbols that one launch decodes take at most this share of what they become.
SYMBOLS_SHARE = 1.0
SYMBOL_BYTES = 4


@dataclass(frozen=True)
class CachegenStreams:
    """A batch as the ``cachegen`` codec stores it."""

    scale_bits: torch.Tensor
    bins: torch.Tensor
    anchors: DeviceStreams
    deltas: DeviceStreams


class CachegenBatch:
    """The ``cachegen`` codec for chunks ``(chunks, layers, 2, tokens, kv_heads, head_dim)``."""

    def __init__(self, tables: CodecTables, shape: KVShape, tokens: int, level: int, device: torch.device) -> None:
        self._shape, self._tokens, self._level, self._device = shape, tokens, level, device
        self._anchors = upload_tables([tables.anchors], device)
        self._deltas = upload_tables([tables.deltas[level]], device)

    def encode(self, kv: torch.Tensor) -> CachegenStreams:
        """Scales, bins and streams of all chunks."""
        x = self._rows(kv)
        anchor_plan, delta_plan = self._plans(len(kv))
        scale_bits, anchors = triton_anchor.quantize_anchors(x[:, :: anchor.GROUP_TOKENS])
        totals = triton_anchor.sum_squares(x, scale_bits).cpu().numpy()
        sigmas = anchor.sigmas_of_squares(totals, anchor.num_deltas(self._tokens) * self._shape.channels)
        # the thirds of the layers are each chunk's own
        of_chunks = [anchor.bins(part, self._level) for part in np.split(sigmas, len(kv))]
        bins = torch.from_numpy(np.concatenate(of_chunks)).to(self._device)
        deltas = triton_anchor.quantize_deltas(x, scale_bits, anchors, bins)
        return CachegenStreams(
            scale_bits,
            bins,
            triton_streams.encode(anchors.flatten(), anchor_plan, self._anchors),
            triton_streams.encode(deltas.flatten(), delta_plan, self._deltas),
        )

    def decode(self, coded: CachegenStreams, out: torch.Tensor) -> None:
        """Fill in the chunks, some rows at a time."""
        rows, channels = self._rows(out), self._shape.channels
        groups, deltas = anchor.num_groups(self._tokens), anchor.num_deltas(self._tokens)
        anchor_plan, delta_plan = self._plans(len(out))
        step = max(1, int(len(rows) * SYMBOLS_SHARE * out.element_size() / SYMBOL_BYTES))
        for first in range(0, len(rows), step):
            end = min(first + step, len(rows))
            symbols = [
                triton_streams.decode(streams.part(first, end), plan.part(first, end), tables, str)
                for streams, plan, tables in (
                    (coded.anchors, anchor_plan, self._anchors),
                    (coded.deltas, delta_plan, self._deltas),
                )
            ]
            triton_anchor.reconstruct(
                coded.scale_bits[first:end],
                symbols[0].view(end - first, channels, groups),
                coded.bins[first:end],
                symbols[1].view(end - first, channels, deltas),
                rows[first:end],
            )

    def _rows(self, kv: torch.Tensor) -> torch.Tensor:
        return kv.view(-1, self._tokens, self._shape.num_kv_heads, self._shape.head_dim)

    def _plans(self, chunks: int) -> tuple[RowPlan, RowPlan]:
        table_rows = np.tile(np.arange(self._shape.rows), chunks)
        counts = (anchor.num_groups(self._tokens), anchor.num_deltas(self._tokens))
        tables = (self._anchors, self._deltas)
        first, second = (
            triton_streams.plan_rows(of, table_rows, np.full(len(table_rows), count))
            for of, count in zip(tables, counts, strict=True)
        )
        return first, second


class TransformBatch:
    """The ``transform`` codec for consecutive chunks in one cache ``(2, layers, kv_heads, chunks * tokens, head_dim)``.

    Every token is coded, with its level's step; a container keeps the first four of a context as they are, and a token
    may have a step of its own. There are neither a codebook nor references: these caches are random, and have no
    tokens.
    """

    def __init__(self, tables: CodecTables, tokens: int, level: int, device: torch.device) -> None:
        self._transform = transform_of(tables)
        place = LEVEL_PLACES[level]
        self._tokens, self._place, self._step, self._device = tokens, place, GRID_STEPS[place], device
        shape = self._transform.shape
        self._dim, self._heads = shape.head_dim, shape.num_layers * shape.num_kv_heads
        group = TokenGroup(place, place, slice(0, tokens))
        spans = [self._transform.spans(unit, group) for unit in self._transform.units]
        self._tables = upload_tables([span.tables for of_unit in spans for span in of_unit], device)
        self._stream_units = np.repeat(np.arange(len(spans)), [len(of_unit) for of_unit in spans])
        ranks = self._transform.ranks[place]
        self._ranks = ranks
        prefixes = [basis.prefix(rank) for basis, rank in zip(self._transform.bases, ranks.tolist(), strict=True)]
        #: Of each unit, ``(rank, channels)``.
        self.bases = [basis.restore(torch.eye(basis.rank)).to(device) for basis in prefixes]
        self._means = self._put(self._transform.means).view(2, self._heads, self._dim)
        self._roots = self._put(self._transform.key_roots)
        self._value_scales = self._put(np.repeat(self._transform.value_scales, shape.num_kv_heads))
        self._partners = self._put(self._transform.rotary.partners.astype(np.int32))
        self._kinds = self._put(np.repeat(self._transform.rotary.of_layer, shape.num_kv_heads).astype(np.int32))

    def encode(self, cache: torch.Tensor) -> list[DeviceStreams]:
        """Streams of each unit: chunk after chunk, each chunk's in order."""
        chunks = cache.shape[3] // self._tokens
        halves = self._forward(cache)
        coded = []
        for unit in self._transform.units:
            x = unit.of(halves).view(chunks, self._tokens, -1)
            y = torch.matmul(self.bases[unit.index], x.transpose(1, 2))
            symbols = triton_uniform.quantize(y, self._step)
            coded.append(triton_streams.encode(symbols.flatten(), self._plan(unit, chunks), self._tables))
        return coded

    def decode(self, coded: list[DeviceStreams], cache: torch.Tensor) -> None:
        """Fill in the cache, unit by unit and some tokens at a time."""
        size = cache.shape[3]
        chunks, tokens = size // self._tokens, torch.arange(size, device=self._device)
        places = np.full(size, self._place, dtype=np.int8)
        backward = Backward(self._transform, 0, np.arange(size), places, None, get_backend("triton"))
        # (layers, 2, tokens, heads, head_dim)
        out = cache.permute(1, 0, 3, 2, 4)
        for unit, streams in zip(self._transform.units, coded, strict=True):
            symbols = triton_streams.decode(streams, self._plan(unit, chunks), self._tables, str)
            symbols = symbols.view(chunks, -1, self._tokens).transpose(0, 1).flatten(1)
            ranks = np.full(size, self._ranks[unit.index])
            backward.restore(symbols, unit, tokens, ranks, out)

    def _forward(self, cache: torch.Tensor) -> list[torch.Tensor]:
        """Keys and values ``(tokens, heads * head_dim)``: see ``cachegen.codecs.equal_harm.forward``."""
        tokens = cache.shape[3]
        turns = self._turns(tokens)
        keys, values = (half.reshape(self._heads, tokens, self._dim).float() for half in cache)
        partners = self._partners.long()
        turned = torch.empty_like(keys)
        for head, kind in enumerate(self._kinds.tolist()):
            turned[head] = keys[head] * turns.cos[kind] - keys[head][:, partners[kind]] * turns.sin[kind]
        keys = torch.bmm(turned - self._means[0][:, None], self._roots)
        values = (values - self._means[1][:, None]) * self._value_scales[:, None, None]
        return [half.transpose(0, 1).reshape(tokens, -1) for half in (keys, values)]

    def _turns(self, tokens: int) -> Turns:
        rotary, positions = self._transform.rotary, np.arange(tokens)
        factors = [rotary.factors(kind, positions) for kind in range(rotary.kinds)]
        cos, sin = (torch.stack(part).to(self._device) for part in zip(*factors, strict=True))
        return Turns(cos, sin, self._partners, self._kinds)

    def _plan(self, unit: Unit, chunks: int) -> RowPlan:
        rows = np.tile(np.flatnonzero(self._stream_units == unit.index), chunks)
        return triton_streams.plan_rows(self._tables, rows, np.full(len(rows), self._tokens))

    def _put(self, array: npt.NDArray[np.generic]) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self._device)
