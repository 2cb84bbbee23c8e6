"""Starlink: every 15 seconds another satellite, hence another rate and another delay."""

from collections.abc import Iterator

from testbed.traces.models.base import Draw, LinkRow, TraceModel
from testbed.traces.models.draws import normal, walk_around_zero

STEP_S = 0.5
INTERVAL_S = 15.0
MEAN_MBPS = 223.0
BETWEEN_SIGMA_MBPS, WITHIN_SIGMA_MBPS = 80.0, 62.0
WITHIN_MEMORY_S = 4.0
LOW_MBPS, HIGH_MBPS = 15.0, 450.0
DELAY_MS = (13.0, 30.0)  # one way
OUTAGE_SHARE, LONGEST_OUTAGE_S = 0.1, 2.0  # of the changes, and at one


def _rows(draw: Draw) -> Iterator[LinkRow]:
    within = walk_around_zero(WITHIN_SIGMA_MBPS, WITHIN_MEMORY_S, STEP_S, draw)
    while True:
        level_mbps = MEAN_MBPS + BETWEEN_SIGMA_MBPS * normal(draw)
        delay_ms = DELAY_MS[0] + (DELAY_MS[1] - DELAY_MS[0]) * draw()
        has_outage, length_s = draw() < OUTAGE_SHARE, LONGEST_OUTAGE_S * draw()
        outage_steps = max(1, round(length_s / STEP_S)) if has_outage else 0
        for step in range(round(INTERVAL_S / STEP_S)):
            rate_mbps = min(HIGH_MBPS, max(LOW_MBPS, level_mbps + next(within)))
            yield LinkRow(0.0 if step < outage_steps else rate_mbps, delay_ms)


MODEL = TraceModel(
    summary="Starlink: another rate and delay every 15 s, short outages",
    source="15 s: Mohan et al., WWW 2024; rates: Starlink on the Autobahn, 2024 (mean 223, up to 446 Mbit/s)",
    rows=_rows,
    step_s=STEP_S,
    duration_s=300.0,
    seed=1,
)
