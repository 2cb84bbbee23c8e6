"""Two columns of text, a stamp and a rate: Pensieve's "cooked" form, and those who write it too.

Nothing in such a file says its units. Where the numbers fit seconds and Mbit/s badly, the formats with the other units
claim the file as well, and the user has to say which it is.
"""

import itertools
import math
import statistics

from testbed.errors import TraceError
from testbed.traces.importers.base import Importer
from testbed.traces.recording import Recording, Stamped, hold, record
from testbed.traces.source import Line, Source, is_number, parse_number

_MBIT_PER_MBYTE, _MBIT_PER_KBIT, _MS_PER_S = 8.0, 1e-3, 1e3
_BITS_PER_BYTE = 8
_ROUNDING = 1e-4

# The median step of known recordings of this form is 5 s at most; one of 10 and more may be milliseconds.
_MS_STEP_FROM = 10.0
# a moment of this century in seconds is below, in milliseconds above
_UNIX_MS_FROM = 1e11
# Lumos5G's 5G goes up to 1,770 Mbit/s, all others of this form are below 100. As kbit/s a rate is below 1 Gbit/s.
_KBPS_ABOVE, _KBPS_ABOVE_IN_LUMOS5G, _KBPS_UP_TO = 500.0, 2000.0, 1e6


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


def _may_be_ms(source: Source) -> bool:
    """Whether the stamps may be milliseconds: far apart, or of this century."""
    if not _has_two_numbers(source):
        return False
    stamps = [float(line.text.split()[0]) for line in source.head()]
    steps = [now - before for before, now in itertools.pairwise(stamps) if math.isfinite(now - before)]
    return stamps[0] >= _UNIX_MS_FROM or (bool(steps) and statistics.median(steps) >= _MS_STEP_FROM)


def _may_be_kbps(source: Source) -> bool:
    """Whether the rates may be kbit/s: one is higher than any of the known recordings in Mbit/s."""
    if not _has_two_numbers(source):
        return False
    rates = (cells[1] for cells in (line.text.split() for line in source.lines()) if len(cells) == 2)
    highest = max((float(rate) for rate in rates if is_number(rate) and math.isfinite(float(rate))), default=0.0)
    return (_KBPS_ABOVE_IN_LUMOS5G if _counts_seconds(source) else _KBPS_ABOVE) < highest <= _KBPS_UP_TO


def _read(source: Source, mbit_per_unit: float, units_per_second: float = 1.0) -> Recording:
    stamped = []
    for line in source.lines():
        place = source.place(line.number)
        time, rate = _cells(line, source)
        rate_mbps = mbit_per_unit * parse_number(rate, f"{place}, rate")
        stamped.append(Stamped(place, parse_number(time, f"{place}, time") / units_per_second, rate_mbps))
    return record(source, hold(stamped))


_MEAN = "over time from the first stamp; a rate holds until the next stamp, the last as long as the one before"

PENSIEVE = Importer(
    summary='Pensieve "cooked" and Oboe: seconds, Mbit/s, apart by a tab or spaces',
    mean=_MEAN,
    recognises=lambda source: _has_two_numbers(source) and not _counts_seconds(source),
    read=lambda source, _series: _read(source, 1.0),
)
LUMOS5G = Importer(
    summary="Lumos5G by run: whole seconds, Mbit/s, apart by a tab or spaces",
    mean=_MEAN,
    recognises=_counts_seconds,
    read=lambda source, _series: _read(source, 1.0),
)
PUFFER_COOKED = Importer(
    summary="Puffer's delivery_rate in Pensieve's form: seconds, MByte/s (10^6 bytes, x 8 for Mbit/s)",
    mean=_MEAN,
    recognises=_may_be_mbytes,
    read=lambda source, _series: _read(source, _MBIT_PER_MBYTE),
)
MS_MBPS = Importer(
    summary="milliseconds, Mbit/s, apart by a tab or spaces",
    mean=_MEAN,
    recognises=_may_be_ms,
    read=lambda source, _series: _read(source, 1.0, _MS_PER_S),
)
MS_KBPS = Importer(
    summary="milliseconds, kbit/s, apart by a tab or spaces",
    mean=_MEAN,
    recognises=_may_be_ms,
    read=lambda source, _series: _read(source, _MBIT_PER_KBIT, _MS_PER_S),
)
S_KBPS = Importer(
    summary="seconds, kbit/s, apart by a tab or spaces",
    mean=_MEAN,
    recognises=_may_be_kbps,
    read=lambda source, _series: _read(source, _MBIT_PER_KBIT),
)
