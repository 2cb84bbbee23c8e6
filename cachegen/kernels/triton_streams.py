"""Entropy coding of any number of rows in one launch: torch tensors in, torch tensors out, all on one device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt
import torch

from cachegen.kernels.base import MAX_LANES, CodedStreams, num_lanes
from cachegen.kernels.stream_faults import SOUND, stream_error
from cachegen.kernels.triton_rans import (
    COPY_BLOCK,
    COPY_LAUNCH,
    LAUNCH,
    ROW_FIELDS,
    decode_kernel,
    encode_kernel,
    move_kernel,
)
from cachegen.kernels.triton_tables import DeviceTables

I64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class RowPlan:
    """Shape, tables and place of each row: ``(rows,)`` arrays, in the order of the flat tensors.

    Row ``i`` has ``channels[i] * tokens[i]`` symbols from ``first_symbol[i]`` on, channel by channel.
    """

    channels: I64
    tokens: I64
    lanes: I64
    first_table: I64
    search_steps: I64
    first_symbol: I64

    def __len__(self) -> int:
        return len(self.channels)

    @property
    def num_symbols(self) -> int:
        """Symbols of all rows."""
        return int((self.channels * self.tokens).sum())

    def part(self, first: int, end: int) -> RowPlan:
        """Rows ``first..end-1`` alone, with symbols of their own."""
        cut = RowPlan(*(getattr(self, field.name)[first:end] for field in fields(self)))
        return _placed(cut.channels, cut.tokens, cut.lanes, cut.first_table, cut.search_steps)


def plan_rows(tables: DeviceTables, table_rows: I64, tokens: I64, lanes: I64 | None = None) -> RowPlan:
    """Plan of rows that are coded with the given rows of the tables.

    ``lanes`` are what an encoder chooses where they are None; a table's row may be named by many rows.
    """
    channels = tables.channels[table_rows]
    if lanes is None:
        lanes = np.array([num_lanes(int(count)) for count in channels * tokens], dtype=np.int64)
    return _placed(channels, tokens, lanes, tables.first_table[table_rows], tables.search_steps[table_rows])


@dataclass(frozen=True)
class DeviceStreams:
    """Streams of rows in order: ``states (rows, 32)``, of which a row's lanes use the first, words and escapes flat."""

    states: torch.Tensor
    num_words: I64
    words: torch.Tensor
    num_escapes: I64
    escapes: torch.Tensor

    def part(self, first: int, end: int) -> DeviceStreams:
        """Rows ``first..end-1`` alone; views."""
        words, escapes = _ends(self.num_words), _ends(self.num_escapes)
        return DeviceStreams(
            self.states[first:end],
            self.num_words[first:end],
            self.words[words[first] : words[end]],
            self.num_escapes[first:end],
            self.escapes[escapes[first] : escapes[end]],
        )


def encode(symbols: torch.Tensor, plan: RowPlan, tables: DeviceTables) -> DeviceStreams:
    """Streams of flat int32 symbols.

    Needs 6 bytes a symbol beside the result: each row is written at the end of a share that holds any row, then moved.
    """
    rows, device = len(plan), tables.device
    states = torch.empty((rows, MAX_LANES), dtype=torch.uint32, device=device)
    counts = torch.empty((rows, 2), dtype=torch.int64, device=device)
    shares = {dtype: torch.empty(symbols.numel(), dtype=dtype, device=device) for dtype in (torch.uint16, torch.int32)}
    described = torch.from_numpy(describe(plan)).to(device)
    encode_kernel[(rows,)](
        described,
        symbols,
        tables.entries,
        tables.cumulative,
        states,
        shares[torch.uint16],
        shares[torch.int32],
        counts,
        **LAUNCH,
    )
    num_words, num_escapes = np.ascontiguousarray(counts.cpu().numpy().T)
    ends = plan.first_symbol + plan.channels * plan.tokens
    words = _collect(shares[torch.uint16], ends, num_words)
    return DeviceStreams(states, num_words, words, num_escapes, _collect(shares[torch.int32], ends, num_escapes))


def decode(coded: DeviceStreams, plan: RowPlan, tables: DeviceTables, name_of: Callable[[int], str]) -> torch.Tensor:
    """Flat int32 symbols; FormatError names the first stream that is not sound by what ``name_of`` says of its row."""
    rows, device = len(plan), tables.device
    symbols = torch.empty(plan.num_symbols, dtype=torch.int32, device=device)
    faults = torch.empty(rows, dtype=torch.int32, device=device)
    described = describe(plan, coded.num_words, coded.num_escapes)
    decode_kernel[(rows,)](
        torch.from_numpy(described).to(device),
        coded.states,
        coded.words,
        coded.escapes,
        tables.entries,
        tables.cumulative,
        symbols,
        faults,
        **LAUNCH,
    )
    found = faults.cpu().numpy()
    unsound = found != SOUND
    if unsound.any():
        row = int(unsound.argmax())
        raise stream_error(name_of(row), int(found[row]))
    return symbols


def upload_streams(parts: Sequence[CodedStreams], device: torch.device) -> DeviceStreams:
    """Streams of all rows of all parts, in order, on a device."""
    states = np.zeros((sum(len(coded.states) for coded in parts), MAX_LANES), dtype=np.uint32)
    row = 0
    for coded in parts:
        rows, lanes = coded.states.shape
        states[row : row + rows, :lanes] = coded.states
        row += rows
    num_words, words, num_escapes, escapes = (
        np.concatenate([getattr(coded, name) for coded in parts])
        for name in ("num_words", "words", "num_escapes", "escapes")
    )
    return DeviceStreams(
        torch.from_numpy(states).to(device),
        num_words,
        torch.from_numpy(words).to(device),
        num_escapes,
        torch.from_numpy(escapes).to(device),
    )


def download_streams(streams: DeviceStreams, lanes: int) -> CodedStreams:
    """Streams of rows that all have the same number of lanes, in the host's memory."""
    states = np.ascontiguousarray(streams.states.cpu().numpy()[:, :lanes])
    words, escapes = streams.words.cpu().numpy(), streams.escapes.cpu().numpy()
    return CodedStreams(states, streams.num_words, words, streams.num_escapes, escapes)


def _placed(channels: I64, tokens: I64, lanes: I64, first_table: I64, search_steps: I64) -> RowPlan:
    first_symbol = _ends(channels * tokens)[:-1]
    return RowPlan(channels, tokens, lanes, first_table, search_steps, first_symbol)


def describe(plan: RowPlan, num_words: I64 | None = None, num_escapes: I64 | None = None) -> I64:
    """What the kernels read of each row, ``(rows, fields)``; an encoder has no words and escapes yet."""
    columns = {field.name: getattr(plan, field.name) for field in fields(plan)}
    for name, counts in (("word", num_words), ("escape", num_escapes)):
        known = np.zeros(len(plan), dtype=np.int64) if counts is None else counts
        columns |= {f"first_{name}": _ends(known)[:-1], f"num_{name}s": known}
    return np.stack([columns[name] for name in ROW_FIELDS], axis=1)


def _collect(shares: torch.Tensor, ends: I64, counts: I64) -> torch.Tensor:
    """The last ``counts`` elements before each of the ends, back to back."""
    targets = _ends(counts)
    result = torch.empty(int(targets[-1]), dtype=shares.dtype, device=shares.device)
    starts, targets_on = (torch.from_numpy(array).to(shares.device) for array in (ends - counts, targets))
    move_kernel[(len(counts),)](shares, starts, result, targets_on, block=COPY_BLOCK, **COPY_LAUNCH)
    return result


def _ends(counts: I64) -> I64:
    """Where each of consecutive parts begins, and where the last one ends."""
    return np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(counts)))
