"""Trace files written whole or not at all, in the project's own format."""

import uuid
from pathlib import Path

from testbed.errors import TraceError
from testbed.traces.recording import Recording

# of a microsecond, so that a step of 100.002 ms stays what it is
_TIME_DECIMALS, _RATE_DIGITS = 9, 12


def recording_csv(recording: Recording) -> str:
    """Return the text of a trace file that replays as the recording does, to the last row's length.

    In that format the last row lasts as long as the row before it; where it does not, it is written as two halves.
    """
    delays_ms = recording.delays_ms or (None,) * len(recording.times_s)
    rows = list(zip(recording.times_s, recording.rates_mbps, delays_ms, strict=True))
    last_s = recording.period_s - rows[-1][0]
    if len(rows) > 1 and abs(last_s - (rows[-1][0] - rows[-2][0])) > 10**-_TIME_DECIMALS:
        rows.append((rows[-1][0] + last_s / 2, *rows[-1][1:]))
    lines = ["time_s,rate_mbps" + (",delay_ms" if recording.delays_ms else "")]
    for time_s, rate_mbps, delay_ms in rows:
        cells = f"{round(time_s, _TIME_DECIMALS):.{_RATE_DIGITS}g},{rate_mbps:.{_RATE_DIGITS}g}"
        lines.append(cells if delay_ms is None else f"{cells},{delay_ms:.{_RATE_DIGITS}g}")
    return "\n".join(lines) + "\n"


def write_new(path: Path, text: str, *, overwrite: bool) -> None:
    """Write a text file that is there whole or not at all.

    Raises
    ------
    TraceError
        The file is there already and is not to be overwritten, or cannot be written.
    """
    if path.exists() and not overwrite:
        raise TraceError(f"{path}: is there already; --overwrite replaces it")
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        raise TraceError(f"{path}: cannot be written: {error.strerror}") from error
    finally:
        partial.unlink(missing_ok=True)
