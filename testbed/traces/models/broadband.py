"""A cable line: flat near its provisioned rate, with dips when the neighbours use it."""

from testbed.traces.models.base import TraceModel
from testbed.traces.models.draws import LinkState
from testbed.traces.models.fading_link import FadingLink

_LINK = FadingLink(
    step_s=0.5,
    start_state="quiet",
    states={
        "quiet": LinkState(97.0, 40.0, (("evening", 0.7), ("crowded", 0.3))),
        "evening": LinkState(82.0, 20.0, (("quiet", 0.7), ("crowded", 0.3))),
        "crowded": LinkState(48.0, 6.0, (("evening", 1.0),)),
    },
    fading_sigma=0.03,
    fading_memory_s=2.0,
    interruption_every_s=60.0,  # a neighbour's burst
    interruption_stay_s=(0.5, 2.0),
    interruption_factor=0.5,
    low_mbps=10.0,
    high_mbps=100.0,
)

MODEL = TraceModel(
    summary="cable line of 100 Mbit/s, with dips",
    source="chosen by us; flat below a cap, with rare dips, as an FCC MBA 2016 line is",
    rows=_LINK,
    step_s=_LINK.step_s,
    duration_s=300.0,
    seed=1,
)
