"""mahimahi: each line is the millisecond at which the link can deliver one packet of 1,500 bytes."""

from collections import Counter

from testbed.errors import TraceError
from testbed.traces.importers.base import Importer
from testbed.traces.recording import Piece, Recording, bin_count, record
from testbed.traces.source import Source, shown
from testbed.traces.text_stream import MAX_BYTES

PACKET_MBIT = 1500 * 8 / 1e6
_MAX_DIGITS = 12


def _is_stamp(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS


def _recognises(source: Source) -> bool:
    return all(_is_stamp(text) for _, text in source.head())


def _read(source: Source, _series: str | None) -> Recording:
    packets: Counter[int] = Counter()
    before_ms, before_text = 0, ""
    # a fast link has thousands of lines a second; held are only their counts
    for number, text in source.lines(most=MAX_BYTES):
        # most lines of a fast link repeat the one before
        if text != before_text:
            now_ms = _parse_stamp(text, source, number)
            if now_ms < before_ms:
                raise TraceError(f"{source.place(number)}: the stamp {now_ms} ms comes after {before_ms} ms")
            before_ms, before_text = now_ms, text
        packets[before_ms] += 1
    if before_ms == 0:
        raise TraceError(f"trace {source.path}: the last stamp is 0 ms, so the trace has no length")
    bins = _bin(packets, before_ms, bin_count(source, before_ms / 1e3), f"trace {source.path}")
    note = f"{packets.total()} packets in {len(bins)} rows of {bins[0].duration_s:.6g} s"
    return record(source, bins, [note])


def _parse_stamp(text: str, source: Source, number: int) -> int:
    if not _is_stamp(text):
        raise TraceError(f"{source.place(number)}: {shown(text)} is not a whole number of milliseconds")
    return int(text)


def _bin(packets: Counter[int], period_ms: int, count: int, place: str) -> list[Piece]:
    """Return equal bins that carry the packets.

    mahimahi begins again at the last stamp, so a stamp closes its millisecond: 1 alone is a packet every ms. What
    stands at 0 is due at the very beginning.
    """
    totals = [0] * count
    for stamp_ms, number in packets.items():
        totals[max(0, -(-stamp_ms * count // period_ms) - 1)] += number
    width_s = period_ms / 1e3 / count
    return [Piece(place, width_s, total * PACKET_MBIT / width_s) for total in totals]


IMPORTER = Importer(
    summary="mahimahi: a line for each packet of 1500 bytes, the ms of its delivery; loops at the last stamp",
    mean="lines x 1500 bytes / last stamp",
    recognises=_recognises,
    read=_read,
)
