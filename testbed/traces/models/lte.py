"""An LTE cell of 20 MHz, shared with others, seen by a user who walks about."""

from testbed.traces.models.base import TraceModel
from testbed.traces.models.draws import LinkState
from testbed.traces.models.fading_link import FadingLink

_LINK = FadingLink(
    step_s=0.1,
    start_state="fair",
    states={
        "good": LinkState(33.0, 9.0, (("fair", 1.0),)),
        "fair": LinkState(18.0, 7.0, (("good", 0.55), ("poor", 0.45))),
        "poor": LinkState(8.5, 4.0, (("fair", 1.0),)),
    },
    fading_sigma=0.28,
    fading_memory_s=0.8,
    interruption_every_s=18.0,  # handovers
    interruption_stay_s=(0.2, 0.5),
    interruption_factor=0.25,
    low_mbps=5.0,
    high_mbps=50.0,
)

MODEL = TraceModel(
    summary="LTE, 20 MHz cell shared with others, on foot",
    source="chosen by us; the mean lies between AT&T's drive (4.6) and Ghent's bicycle (31.6 Mbit/s)",
    rows=_LINK,
    step_s=_LINK.step_s,
    duration_s=120.0,
    seed=4,  # of a dozen tried, one whose mean comes near 20 Mbit/s
)
