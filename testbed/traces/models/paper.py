"""The bandwidth of the paper's adaptation experiment, which is drawn and not measured, at a scale for small models."""

from collections.abc import Iterator

from testbed.traces.models.base import Draw, LinkRow, TraceModel

STEP_S = 0.5
LOW_MBPS, HIGH_MBPS = 100.0, 10_000.0
# SmolLM2's KV takes 5.7 times fewer bytes a token than Mistral-7B's, a context of 2,048 tokens is 4.6 times shorter
# than the paper's, and a CPU's objective of 5 s is 5 times longer than its 1 s: 131 together, rounded.
SCALE = 0.01


def _rows(draw: Draw) -> Iterator[LinkRow]:
    while True:
        yield LinkRow(SCALE * (LOW_MBPS + (HIGH_MBPS - LOW_MBPS) * draw()))


MODEL = TraceModel(
    summary="the paper's uniform draws of 0.1-10 Gbit/s, x 0.01; synthetic by design",
    source="CacheGen (SIGCOMM 2024), adaptation experiment; the scale and the 0.5 s are chosen by us",
    rows=_rows,
    step_s=STEP_S,
    duration_s=120.0,
    seed=1,
)
