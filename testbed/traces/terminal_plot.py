"""A trace drawn with characters."""

from collections.abc import Iterator

from testbed.trace import Trace
from testbed.traces.statistics import mean_mbps_in

_EIGHTHS = " ▁▂▃▄▅▆▇█"
_HEIGHT, _MARGIN = 10, 9


def draw_trace(trace: Trace, width: int) -> Iterator[str]:
    """Yield the lines of a bar chart: a column is the mean of its part of the period, an empty one an outage."""
    columns = max(10, width - _MARGIN - 1)
    means_mbps = mean_mbps_in(trace, columns)
    top_mbps = max(means_mbps)
    # an eighth at least where anything arrives: only an outage is empty
    eighths = [max(1, round(8 * _HEIGHT * mbps / top_mbps)) if mbps > 0 else 0 for mbps in means_mbps]
    for row in reversed(range(_HEIGHT)):
        label = f"{top_mbps * (row + 1) / _HEIGHT:.4g}" if row in (_HEIGHT - 1, _HEIGHT // 2 - 1) else ""
        yield f"{label:>{_MARGIN}}▕" + "".join(_EIGHTHS[min(8, max(0, value - 8 * row))] for value in eighths)
    end = f"{trace.period_s:.6g} s"
    yield f"{'Mbit/s':>{_MARGIN}} 0 s{end:>{columns - 3}}"
