"""Between two regions of a cloud: nearly constant, with dips when others send too."""

from testbed.traces.models.base import TraceModel
from testbed.traces.models.draws import LinkState
from testbed.traces.models.fading_link import FadingLink

_LINK = FadingLink(
    step_s=0.1,
    start_state="usual",
    states={
        "usual": LinkState(480.0, 20.0, (("shared", 1.0),)),
        "shared": LinkState(360.0, 3.0, (("usual", 1.0),)),
    },
    fading_sigma=0.02,
    fading_memory_s=1.0,
    interruption_every_s=40.0,  # a burst of another tenant
    interruption_stay_s=(0.1, 0.3),
    interruption_factor=0.6,
    low_mbps=100.0,
    high_mbps=500.0,
)

MODEL = TraceModel(
    summary="data centre to data centre, a tenth of two cloud regions' rate",
    source="level: about 4.8 Gbit/s between two US regions (Skyplane's grid), / 10; the dips are chosen by us",
    rows=_LINK,
    step_s=_LINK.step_s,
    duration_s=120.0,
    seed=1,
)
