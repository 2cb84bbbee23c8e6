"""Wi-Fi in a shared home: the air is free, shared or busy, and a burst of interference takes it away."""

from testbed.traces.models.base import TraceModel
from testbed.traces.models.draws import LinkState
from testbed.traces.models.fading_link import FadingLink

_LINK = FadingLink(
    step_s=0.1,
    start_state="free",
    states={
        "free": LinkState(180.0, 5.0, (("shared", 1.0),)),
        "shared": LinkState(95.0, 3.0, (("free", 0.6), ("busy", 0.4))),
        "busy": LinkState(35.0, 1.5, (("shared", 1.0),)),
    },
    fading_sigma=0.18,
    fading_memory_s=0.3,
    interruption_every_s=8.0,  # interference
    interruption_stay_s=(0.1, 0.4),
    interruption_factor=0.1,
    low_mbps=10.0,
    high_mbps=250.0,
)

MODEL = TraceModel(
    summary="Wi-Fi shared in a home, with bursts of interference",
    source="chosen by us",
    rows=_LINK,
    step_s=_LINK.step_s,
    duration_s=120.0,
    seed=1,
)
