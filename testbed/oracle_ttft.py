"""The TTFT that a rule could have had, knowing the trace: what tells avoidable violations from infeasible ones."""

import itertools
from collections.abc import Sequence

from cachegen import ChunkOptions, Controller, FixedController, LinkKnowledge, MeetController, make_estimator
from testbed.trace import Trace
from testbed.virtual_link import LinkFuture, VirtualLink
from testbed.virtual_load import VirtualCosts, VirtualResult, log_nothing, run_virtual_load


def oracle_ttft_s(
    chunks: Sequence[ChunkOptions], encodings: Sequence[str], future: LinkFuture, rtt_s: float, costs: VirtualCosts
) -> float:
    """Return seconds from arrival to first token of the best of three: recomputing all, streaming all as coarsely as
    may be, and a plan over the link's future for speed alone.

    Parameters
    ----------
    chunks : sequence of ChunkOptions
        Of the context.
    encodings : sequence of str
        That may be chosen from; none: all is recomputed.
    future : LinkFuture
        From the request's arrival on.
    rtt_s : float
        The link's.
    costs : VirtualCosts
        Of decoding and of the question.
    """
    recompute_s = rtt_s + sum(chunk.recompute_s for chunk in chunks) + costs.question_s
    if not encodings:
        return recompute_s

    def load(controller: Controller, known: LinkKnowledge | None = None) -> VirtualResult:
        link, estimator = VirtualLink(future, rtt_s), make_estimator(controller.estimator)
        return run_virtual_load(chunks, controller, estimator, link, rtt_s, 0.0, costs, log_nothing, known=known)

    fixed, planned = (
        load(FixedController(encodings[-1])),
        load(MeetController(encodings, future, target_share=0.0)),
    )
    # once more: what it chose for the last chunk can be asked for before the index
    foresighted = load(MeetController(encodings, future, target_share=0.0), planned.link)
    return min(recompute_s, *(result.ttft_s for result in (fixed, planned, foresighted)))


def least_rtt_s(
    trace: Trace, offset_s: float, span_s: float, delay_ms: float, uplink_delay_ms: float | None = None
) -> float:
    """Return the shortest round trip of an idle link during a replay's first seconds.

    Parameters
    ----------
    trace : Trace
        The link's; its own delays, if it has any, go before ``delay_ms``.
    offset_s, span_s : float
        Where in the trace the replay begins, and for how long to look.
    delay_ms, uplink_delay_ms : float
        One way, towards the receiver and back; None: alike.
    """
    delays_ms = [delay_ms]
    if trace.delays_ms is not None:
        # a period has them all
        look_s = min(span_s, trace.period_s)
        steps = itertools.takewhile(lambda step: step.start_s < look_s, trace.steps(offset_s))
        delays_ms = [step.delay_ms for step in steps if step.delay_ms is not None]
    down_ms = min(delays_ms)
    return (down_ms + (down_ms if uplink_delay_ms is None else uplink_delay_ms)) / 1e3
