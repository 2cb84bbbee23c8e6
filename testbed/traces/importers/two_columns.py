"""Two columns of text, a stamp in seconds and a rate: Pensieve's "cooked" form, and those who write it too."""

import itertools

from testbed.errors import TraceError
from testbed.traces.importers.base import Importer
from testbed.traces.recording import Recording, Stamped, hold, record
from testbed.traces.source import Line, Source, is_number, parse_number

_MBIT_PER_MBYTE = 8.0
_BITS_PER_BYTE = 8
_ROUNDING = 1e-4


def _cells(line: Line, source: Source) -> tuple[str, str]:
    cells = line.text.split()
    if len(cells) != 2:
        raise TraceError(f"{source.place(line.number)}: {len(cells)} values, not a stamp and a rate")
    return cells[0], cells[1]


def _has_two_numbers(source: Source) -> bool:
    rows = [line.text.split() for line in source.head()]
    return all(len(cells) == 2 and all(map(is_number, cells)) for cells in rows)


def _counts_seconds(source: Source) -> bool:
    """Whether the stamps are 0, 1, 2 ... or 1, 2, 3 ...: Lumos5G's."""
    if not _has_two_numbers(source):
        return False
    stamps = [float(line.text.split()[0]) for line in source.head()]
    return stamps[0] in (0, 1) and all(now - before == 1 for before, now in itertools.pairwise(stamps))


def _may_be_mbytes(source: Source) -> bool:
    """Whether the rates may be whole bytes per second divided by 10^6.

    They may where each has at most six decimals, one has all six, and not all come from whole bytes if read as bits.
    """
    if not _has_two_numbers(source):
        return False
    rates = [cells[1] for cells in (line.text.split() for line in source.lines()) if len(cells) == 2]
    millionths = [1e6 * float(rate) for rate in rates if is_number(rate)]
    if any(abs(value - round(value)) > _ROUNDING for value in millionths if abs(value) < float("inf")):
        return False
    has_six_decimals = any(round(value) % 10 for value in millionths if abs(value) < float("inf"))
    return has_six_decimals and any(round(value) % _BITS_PER_BYTE for value in millionths if abs(value) < float("inf"))


def _read(source: Source, mbit_per_unit: float) -> Recording:
    stamped = []
    for line in source.lines():
        place = source.place(line.number)
        time, rate = _cells(line, source)
        rate_mbps = mbit_per_unit * parse_number(rate, f"{place}, rate")
        stamped.append(Stamped(place, parse_number(time, f"{place}, time"), rate_mbps))
    return record(source, hold(stamped))


def _read_mbits(source: Source, _series: str | None) -> Recording:
    return _read(source, 1.0)


def _read_mbytes(source: Source, _series: str | None) -> Recording:
    return _read(source, _MBIT_PER_MBYTE)


_MEAN = "over time from the first stamp; a rate holds until the next stamp, the last as long as the one before"

PENSIEVE = Importer(
    summary='Pensieve "cooked" and Oboe: seconds, Mbit/s, apart by a tab or spaces',
    mean=_MEAN,
    recognises=lambda source: _has_two_numbers(source) and not _counts_seconds(source),
    read=_read_mbits,
)
LUMOS5G = Importer(
    summary="Lumos5G by run: whole seconds, Mbit/s, apart by a tab or spaces",
    mean=_MEAN,
    recognises=_counts_seconds,
    read=_read_mbits,
)
PUFFER_COOKED = Importer(
    summary="Puffer's delivery_rate in Pensieve's form: seconds, MByte/s (10^6 bytes, x 8 for Mbit/s)",
    mean=_MEAN,
    recognises=_may_be_mbytes,
    read=_read_mbytes,
)
