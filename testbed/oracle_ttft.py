"""The TTFT that a rule could have had, knowing the trace: what tells avoidable violations from infeasible ones."""

from collections.abc import Sequence

from cachegen import ChunkOptions, FixedController, MeetController, make_estimator
from testbed.virtual_link import LinkFuture, VirtualLink
from testbed.virtual_load import VirtualCosts, log_nothing, run_virtual_load


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
    controllers = (MeetController(encodings, future, target_share=0.0), FixedController(encodings[-1]))
    results = [
        run_virtual_load(
            chunks,
            controller,
            make_estimator(controller.estimator),
            VirtualLink(future, rtt_s),
            rtt_s,
            0.0,
            costs,
            log_nothing,
        )
        for controller in controllers
    ]
    return min(recompute_s, *(result.ttft_s for result in results))
