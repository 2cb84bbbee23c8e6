"""LTE from a moving car: deep fades, a busy cell, and moments without any service."""

from testbed.traces.models.base import TraceModel
from testbed.traces.models.draws import LinkState
from testbed.traces.models.fading_link import FadingLink

_LINK = FadingLink(
    step_s=0.1,
    start_state="fair",
    states={
        "good": LinkState(8.9, 2.5, (("fair", 1.0),)),
        "fair": LinkState(3.35, 2.0, (("good", 0.45), ("poor", 0.4), ("none", 0.15))),
        "poor": LinkState(1.05, 1.5, (("fair", 0.6), ("none", 0.4))),
        "none": LinkState(0.0, 0.45, (("poor", 0.5), ("fair", 0.5))),
    },
    fading_sigma=0.55,
    fading_memory_s=0.6,
    interruption_every_s=10.0,  # handovers: nothing arrives
    interruption_stay_s=(0.1, 0.4),
    interruption_factor=0.0,
    low_mbps=0.1,
    high_mbps=60.0,
)

MODEL = TraceModel(
    summary="LTE from a moving car, with moments of no service",
    source="fitted to AT&T LTE driving 2016, down (mahimahi; Winstein et al., NSDI 2013)",
    rows=_LINK,
    step_s=_LINK.step_s,
    duration_s=120.0,
    seed=2,  # of eight tried, the nearest to the recording
)
