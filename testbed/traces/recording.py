"""A capacity over time, checked and ready for replay: what every importer makes of a file."""

import itertools
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from testbed.errors import TraceError
from testbed.traces.source import Source

# Beyond these a value is a slip of unit, not a link: 100 Gbit/s, 10 s one way.
MAX_RATE_MBPS = 100_000.0
MAX_DELAY_MS = 10_000.0

# A link follows steps of 10 ms. What is finer becomes bins of a tenth of a second that carry the same bytes.
FINEST_PIECE_S = 0.01
BIN_S = 0.1
MAX_BINS = 1_000_000  # more than a day

# A constant link has no period of its own.
CONSTANT_PERIOD_S = 1.0


class Piece(NamedTuple):
    """A stretch of constant capacity; ``place`` says where in the file it stands."""

    place: str
    duration_s: float
    rate_mbps: float
    delay_ms: float | None = None


class Stamped(NamedTuple):
    """A capacity that holds from its stamp on."""

    place: str
    time_s: float
    rate_mbps: float
    delay_ms: float | None = None


@dataclass(frozen=True)
class Recording:
    """What a file says about a link.

    Parameters
    ----------
    times_s, rates_mbps : tuple of float
        Row i's rate holds from ``times_s[i]`` until the next stamp, the last one until ``period_s``. 0 is an outage.
    delays_ms : tuple of float or None
        One-way delay of each row; None if the file has none.
    period_s : float
        Length of the recording.
    notes : tuple of str
        What a user should know: rows left out, time not measured, finer steps joined.
    """

    times_s: tuple[float, ...]
    rates_mbps: tuple[float, ...]
    delays_ms: tuple[float, ...] | None
    period_s: float
    notes: tuple[str, ...] = ()


def hold(stamped: Sequence[Stamped]) -> list[Piece]:
    """Turn stamps into pieces: each value holds until the next stamp, the last as long as the one before it.

    Raises
    ------
    TraceError
        A stamp does not come after the one before it.
    """
    for before, now in itertools.pairwise(stamped):
        if now.time_s <= before.time_s:
            # all digits: of seconds since 1970 the last ones tell two stamps apart
            raise TraceError(f"{now.place}: the stamp {now.time_s:.13g} s does not come after {before.time_s:.13g} s")
    if not stamped:
        return []
    durations_s = [now.time_s - before.time_s for before, now in itertools.pairwise(stamped)]
    durations_s.append(durations_s[-1] if durations_s else CONSTANT_PERIOD_S)
    return [
        Piece(row.place, duration_s, row.rate_mbps, row.delay_ms)
        for row, duration_s in zip(stamped, durations_s, strict=True)
    ]


def record(source: Source, pieces: Sequence[Piece], notes: Iterable[str] = ()) -> Recording:
    """Lay pieces end to end and check them; those finer than a link can follow are joined, to the byte.

    Raises
    ------
    TraceError
        There is no piece, a value is beyond what a link can have, or nothing could ever arrive.
    """
    for piece in pieces:
        check_limits(piece)
    if not pieces:
        raise TraceError(f"trace {source.path}: nothing that could be replayed")
    if not any(piece.rate_mbps for piece in pieces):
        raise TraceError(f"trace {source.path}: every rate is 0, nothing could ever arrive")
    shortest_s = min(piece.duration_s for piece in pieces)
    if shortest_s < FINEST_PIECE_S:
        bins = _join_into_bins(pieces, bin_count(source, sum(piece.duration_s for piece in pieces)))
        note = f"steps down to {shortest_s * 1e3:.3g} ms were joined: {len(bins)} rows of {bins[0].duration_s:.6g} s"
        pieces, notes = bins, (*notes, note)
    ends_s = list(itertools.accumulate(piece.duration_s for piece in pieces))
    if len(pieces) == 1:
        ends_s = [max(CONSTANT_PERIOD_S, ends_s[0])]
    delays_ms = [piece.delay_ms for piece in pieces if piece.delay_ms is not None]
    assert len(delays_ms) in (0, len(pieces)), "a delay for each piece, or for none"
    return Recording(
        times_s=(0.0, *ends_s[:-1]),
        rates_mbps=tuple(piece.rate_mbps for piece in pieces),
        delays_ms=tuple(delays_ms) if delays_ms else None,
        period_s=ends_s[-1],
        notes=tuple(notes),
    )


def check_limits(piece: Piece) -> None:
    """Refuse a rate or a delay that no link has."""
    if piece.rate_mbps > MAX_RATE_MBPS:
        raise TraceError(f"{piece.place}: {piece.rate_mbps:g} Mbit/s is above {MAX_RATE_MBPS:g}: is the unit right?")
    if piece.delay_ms is not None and piece.delay_ms > MAX_DELAY_MS:
        raise TraceError(f"{piece.place}: a delay of {piece.delay_ms:g} ms is above {MAX_DELAY_MS:g}")


def bin_count(source: Source, period_s: float) -> int:
    """Return into how many bins of about a tenth of a second a recording is cut; all of them are equal.

    Raises
    ------
    TraceError
        There would be more than a million.
    """
    count = max(1, round(period_s / BIN_S))
    if count > MAX_BINS:
        raise TraceError(f"trace {source.path}: {period_s:g} s is too long; cut out the part to be replayed")
    return count


def _join_into_bins(pieces: Sequence[Piece], count: int) -> list[Piece]:
    """Return equal bins that carry the bytes of the pieces."""
    ends_s = list(itertools.accumulate(piece.duration_s for piece in pieces))
    carried_mbit = [0.0, *itertools.accumulate(piece.duration_s * piece.rate_mbps for piece in pieces)]
    width_s = ends_s[-1] / count
    bins, before_mbit, first = [], 0.0, 0
    for index in range(count):
        end_s = (index + 1) * width_s
        last = min(bisect_right(ends_s, end_s), len(pieces) - 1)
        # what lies before the bin's end: whole pieces, and the share of the one that the end cuts
        rest_s = end_s - (ends_s[last - 1] if last else 0.0)
        until_mbit = carried_mbit[-1] if index == count - 1 else carried_mbit[last] + rest_s * pieces[last].rate_mbps
        rate_mbps = max(0.0, until_mbit - before_mbit) / width_s
        bins.append(Piece(pieces[first].place, width_s, rate_mbps, pieces[first].delay_ms))
        before_mbit, first = until_mbit, last
    return bins
