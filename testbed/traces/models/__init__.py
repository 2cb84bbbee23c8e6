"""Our own models of links. Adding one: a module here with its ``MODEL``, and a line in ``MODELS``."""

from testbed.traces.models import (
    broadband,
    lte,
    lte_driving,
    mmwave,
    paper,
    starlink,
    umts,
    wan,
    wifi,
)
from testbed.traces.models.base import TraceModel, synthesize

__all__ = ["MODELS", "TraceModel", "synthesize"]

MODELS: dict[str, TraceModel] = {
    "lte": lte.MODEL,
    "lte-driving": lte_driving.MODEL,
    "5g-mmwave": mmwave.MODEL,
    "3g": umts.MODEL,
    "wifi": wifi.MODEL,
    "starlink": starlink.MODEL,
    "broadband": broadband.MODEL,
    "wan": wan.MODEL,
    "paper": paper.MODEL,
}
