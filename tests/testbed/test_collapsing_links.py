"""Whatever a link becomes, and whenever: a load ends one timeout and what recomputation takes after its deadline."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cachegen import ChunkOptions, LoadLimits, make_controller, make_estimator
from testbed.trace import parse_trace
from testbed.virtual_link import LinkFuture, VirtualLink
from testbed.virtual_load import VirtualCosts, run_virtual_load

LADDER = ["level-0", "level-1", "level-2"]
SPECS = ["text", "fixed:level-0", "fixed:level-2", "paper", "meet"]
PATIENCE_S, RTT_S = LoadLimits().patience_s, 0.02
COSTS = VirtualCosts(decode_s=lambda encoding, tokens: 0.01, reserve_s=0.1, question_s=0.05)
# Round trips, decodes and the clock's ticks.
SLACK_S = 0.5
MOST_S = 550.0


def load(spec, rates, *, slo_s, count=6, recompute_s=1.0, base_bytes=400_000):
    """Load over a link of ``(from_s, rate_mbps)`` steps; return TTFT and events."""
    rows = "".join(f"{from_s},{rate_mbps}\n" for from_s, rate_mbps in [*rates, (MOST_S + 50, rates[-1][1])])
    future = LinkFuture(parse_trace(f"time_s,rate_mbps\n{rows}".encode(), Path("t.csv")), 0.0)
    sizes = {name: base_bytes * factor for name, factor in zip(LADDER, (4, 2, 1), strict=True)}
    chunks = [ChunkOptions(index, 512, sizes, recompute_s) for index in range(count)]
    controller, events = make_controller(spec, LADDER), []
    result = run_virtual_load(
        chunks,
        controller,
        make_estimator(controller.estimator),
        VirtualLink(future, RTT_S),
        RTT_S,
        slo_s,
        COSTS,
        lambda event, **fields: events.append((event, fields)),
        give_up_s=MOST_S,
    )
    return result.ttft_s, events


def missing_at(events, count, moment_s):
    """Chunks not in place by then."""
    ready = {
        fields["chunk"]
        for event, fields in events
        if event in {"decode", "recompute"} and fields["ended_s"] <= moment_s
    }
    return count - len(ready)


rates_mbps = st.one_of(st.just(0.0), st.floats(0.001, 0.2), st.floats(0.2, 80.0))
collapses = st.tuples(st.floats(0.5, 80.0), st.floats(0.05, 25.0), rates_mbps)


@pytest.mark.parametrize("spec", SPECS)
@settings(deadline=None, max_examples=25)
@given(
    collapse=collapses,
    slo_s=st.sampled_from([0.2, 2.0, 5.0, 12.0]),
    count=st.integers(1, 8),
    recompute_s=st.sampled_from([0.05, 0.5, 3.0]),
)
def test_after_a_collapse_a_load_ends_within_one_timeout_and_recomputation(spec, collapse, slo_s, count, recompute_s):
    before_mbps, at_s, after_mbps = collapse
    ttft_s, events = load(
        spec, [(0, before_mbps), (at_s, after_mbps)], slo_s=slo_s, count=count, recompute_s=recompute_s
    )

    moment_s = max(slo_s, at_s) + PATIENCE_S
    left_s = recompute_s * missing_at(events, count, moment_s)
    assert ttft_s <= moment_s + left_s + SLACK_S


@pytest.mark.parametrize("spec", SPECS)
@settings(deadline=None, max_examples=25)
@given(
    steps=st.lists(st.tuples(st.floats(0.05, 8.0), rates_mbps), min_size=1, max_size=12),
    slo_s=st.sampled_from([0.2, 2.0, 5.0]),
    count=st.integers(1, 8),
    recompute_s=st.sampled_from([0.05, 0.5, 3.0]),
)
def test_whatever_the_link_does_a_load_ends_within_one_timeout_and_twice_recomputation(
    spec, steps, slo_s, count, recompute_s
):
    rates, from_s = [], 0.0
    for seconds, rate_mbps in steps:
        rates.append((from_s, rate_mbps))
        from_s = round(from_s + seconds, 3)
    ttft_s, events = load(spec, [*rates, (from_s, 1.0)], slo_s=slo_s, count=count, recompute_s=recompute_s)

    moment_s = slo_s + PATIENCE_S
    left_s = recompute_s * missing_at(events, count, moment_s)
    left_after_s = recompute_s * missing_at(events, count, moment_s + left_s)
    assert ttft_s <= moment_s + left_s + left_after_s + SLACK_S


@pytest.mark.parametrize("spec", ["fixed:level-0", "paper"])
def test_a_trickle_after_a_good_start_is_given_up_by_name(spec):
    # too long for the paper's rule to recompute of itself
    ttft_s, events = load(spec, [(0, 20), (2, 0.012)], slo_s=5.0, recompute_s=3.0)
    [reason] = [fields["reason"] for event, fields in events if event == "store_given_up"]

    assert "bytes are missing, at" in reason
    assert ttft_s <= 5.0 + PATIENCE_S + 6 * 3.0 + SLACK_S


def test_what_is_missing_counts_in_the_encodings_that_the_controller_takes():
    # three of level 0 are on their way and one is undecided: of level 2 the store would be worth waiting for
    ttft_s, events = load("fixed:level-0", [(0, 2.0)], slo_s=5.0, count=4, recompute_s=3.0)

    assert [event for event, _ in events].count("recompute") == 4
    assert ttft_s <= 5.0 + PATIENCE_S + 4 * 3.0 + SLACK_S


@pytest.mark.parametrize("recompute_s", [20.0, 1e9])
def test_a_slow_and_steady_link_is_not_thrown_away_where_recomputing_takes_longer(recompute_s):
    ttft_s, events = load("fixed:level-0", [(0, 1.0)], slo_s=2.0, recompute_s=recompute_s)

    assert ttft_s == pytest.approx(6 * 1.6e6 * 8 / 1e6, rel=0.1)
    assert not [event for event, _ in events if event in {"store_given_up", "recompute"}]
