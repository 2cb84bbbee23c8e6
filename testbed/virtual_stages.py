"""Where the time of a virtual load went, by the rule of :class:`cachegen.StageClock`, out of its events."""

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

from testbed.metrics import STAGES

# Which events have which stage between which of their fields.
_SPANS = {
    "fetch": (("fetch", "first_byte_s", "ended_s"),),
    "decode": (("decode", "started_s", "ended_s"),),
    "recompute": (("recompute", "started_s", "ended_s"),),
}


def stages_of(events: Iterable[Mapping[str, Any]], load_s: float, question_s: float) -> dict[str, float]:
    """Return seconds by stage; they sum to ``load_s + question_s``.

    An instant belongs to the last of waiting, fetching, decoding and recomputing that was going on.

    Parameters
    ----------
    events : iterable of mapping
        Of the load, with ``event`` and times from its arrival.
    load_s : float
        When the context was loaded.
    question_s : float
        Prefill of the question behind it.
    """
    spans = [
        (STAGES.index(stage), event[first], event[last])
        for event in events
        for stage, first, last in _SPANS.get(event["event"], ())
        if event[first] is not None
    ]
    edges = sorted({0.0, load_s, *(min(load_s, edge) for _, *ends in spans for edge in ends)})
    spent = dict.fromkeys(STAGES, 0.0)
    for start_s, end_s in pairwise(edges):
        going_on = [stage for stage, first, last in spans if first < end_s and last > start_s]
        spent[STAGES[max(going_on, default=STAGES.index("wait"))]] += end_s - start_s
    spent["question_prefill"] = question_s
    return spent
