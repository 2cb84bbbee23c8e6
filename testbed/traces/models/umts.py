"""3G/HSDPA in a bus or a tram: slow, changing over seconds, gone in a tunnel."""

from testbed.traces.models.base import TraceModel
from testbed.traces.models.draws import LinkState
from testbed.traces.models.fading_link import FadingLink

_LINK = FadingLink(
    step_s=0.1,
    start_state="open",
    states={
        "open": LinkState(2.6, 14.0, (("street", 1.0),)),
        "street": LinkState(1.6, 10.0, (("open", 0.6), ("hill", 0.3), ("tunnel", 0.1))),
        "hill": LinkState(0.8, 5.0, (("street", 0.7), ("tunnel", 0.3))),
        "tunnel": LinkState(0.0, 4.0, (("street", 1.0),)),
    },
    fading_sigma=0.22,
    fading_memory_s=2.0,
    interruption_every_s=30.0,  # handovers
    interruption_stay_s=(0.2, 0.8),
    interruption_factor=0.2,
    low_mbps=0.2,
    high_mbps=5.0,
)

MODEL = TraceModel(
    summary="3G/HSDPA on public transport, with outages",
    source="range and pace as in Norway HSDPA (Riiser et al., MMSys 2013); the outages are chosen by us",
    rows=_LINK,
    step_s=_LINK.step_s,
    duration_s=180.0,
    seed=1,
)
