"""Sixteen requests on one link and one compute lane, on a virtual clock: sharing by deadline against equal sharing."""

import math
import random

import pytest

from cachegen import ChunkOptions, LinkKnowledge, make_controller, make_estimator
from testbed.metrics import jain_index
from testbed.trace import load_trace
from testbed.virtual_link import LinkFuture, VirtualLink
from testbed.virtual_load import VirtualCosts, VirtualRequest, log_nothing, run_virtual_loads

REQUESTS = 16
RTT_S = 0.04
# bytes of 512 tokens of a model of 135 million parameters at six levels, and its prefill on two cores (docs/results.md)
SIZES = dict(
    zip([f"level-{place}" for place in range(6)], (1_185_000, 900_000, 664_000, 475_000, 331_000, 226_000), strict=True)
)
LADDER = list(SIZES)
COSTS = VirtualCosts(decode_s=lambda encoding, tokens: 0.03, reserve_s=0.2, question_s=0.1)
# deadlines that are tight for sixteen on each link
SLO_S = {"lte": 10.0, "wifi": 4.0, "starlink": 4.0, "lte-driving": 20.0}
# requests a second; None: all at once
RATES = (None, 2.0)


def serve(trace_name, seed, sharing, *, spec="meet", slo_s=None, rate=None, admission=False):
    trace, dice = load_trace(trace_name), random.Random(f"{trace_name}/{seed}")
    future = LinkFuture(trace, dice.uniform(0.0, trace.period_s))
    requests, arrival_s = [], 0.0
    for _ in range(REQUESTS):
        chunks = [ChunkOptions(index, 512, SIZES, 0.5 + 0.08 * index) for index in range(dice.choice([2, 4, 8]))]
        controller = make_controller(spec, LADDER, future)
        estimator = make_estimator(controller.estimator)
        known = LinkKnowledge(8e6, RTT_S)
        slo = slo_s or SLO_S[trace_name]
        requests.append(VirtualRequest(arrival_s, chunks, controller, estimator, slo, log_nothing, known))
        arrival_s += dice.expovariate(rate) if rate else 0.0
    link = VirtualLink(future, RTT_S)
    return run_virtual_loads(
        requests, link, RTT_S, COSTS, sharing=sharing, admission=admission, give_up_s=60.0, tick_s=0.02
    )


def violations(results, slo_s):
    return sum(result.ttft_s > slo_s for result in results)


def fairness(results, slo_s):
    return jain_index([min(1.0, slo_s / result.ttft_s) for result in results])


def test_sixteen_miss_fewer_deadlines_when_the_link_is_divided_by_deadline(record_property):
    """``pytest --junit-xml FILE`` writes the figures down."""
    total = {"equal": 0, "deadline": 0}
    for trace_name, slo_s in SLO_S.items():
        for seed, rate in enumerate(RATES):
            for sharing in total:
                results = serve(trace_name, seed, sharing, rate=rate)
                missed = violations(results, slo_s)
                total[sharing] += missed
                mean_s = math.fsum(result.ttft_s for result in results) / REQUESTS
                record_property(
                    f"{trace_name}, SLO {slo_s:g} s, {'at once' if rate is None else f'{rate:g} a second'}, {sharing}",
                    f"{missed} of {REQUESTS} missed, mean TTFT {mean_s:.2f} s, fairness {fairness(results, slo_s):.3f}",
                )
    record_property(f"missed of {REQUESTS * len(RATES) * len(SLO_S)}", str(total))
    assert total["deadline"] < 0.5 * total["equal"]


def test_the_same_requests_have_the_same_course():
    assert serve("lte", 1, "deadline", rate=2.0) == serve("lte", 1, "deadline", rate=2.0)


@pytest.mark.parametrize("sharing", ["equal", "deadline"])
def test_every_load_ends_with_all_of_its_chunks(sharing):
    for result in serve("lte", 3, sharing, rate=2.0):
        assert result.ttft_s < 60
        assert set(result.chunk_sources) <= {*LADDER, "recompute"}


def test_of_a_hopeless_crowd_some_are_served_in_time_all_the_same():
    """Without setting the lost ones back, the order of deadlines serves each just too late."""
    results = serve("lte", 0, "deadline", slo_s=3.0)
    served = sum(result.ttft_s <= 3.0 for result in results)

    assert 3 <= served < REQUESTS
    assert served >= sum(result.ttft_s <= 3.0 for result in serve("lte", 0, "equal", slo_s=3.0))


@pytest.mark.parametrize("sharing", ["equal", "deadline"])
def test_admission_refuses_early_and_serves_the_admitted_better(sharing):
    slo_s = 4.0
    open_door = serve("lte", 0, sharing, slo_s=slo_s, rate=4.0)
    guarded = serve("lte", 0, sharing, slo_s=slo_s, rate=4.0, admission=True)
    refused = [result for result in guarded if result.refused]
    admitted = [result for result in guarded if not result.refused]

    assert refused
    assert all("deadline" in result.refused and result.received_bytes == 0 for result in refused)
    late = violations(admitted, slo_s) / len(admitted)
    assert late <= violations(open_door, slo_s) / REQUESTS


@pytest.mark.parametrize("spec", ["text", "fixed:level-3", "paper", "meet", "oracle"])
def test_every_controller_shares(spec):
    results = serve("wifi", 0, "deadline", spec=spec, rate=4.0)
    assert all(result.ttft_s < 60 for result in results)
