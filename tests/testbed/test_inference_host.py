"""Batches of requests on the inference host, over a real server: results in order, arrivals kept, quality measured."""

import asyncio
import itertools
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

# a stored context of a tiny model, and its server, are built by what the library's own tests share
sys.path.append(str(Path(__file__).resolve().parents[1] / "cachegen"))

from slow_link import SlowLink
from storage_server import running_server
from stored_context import COSTS, store_context
from tiny_models import random_tokens

from cachegen import LinkKnowledge, LoadCosts, LoadLimits, RecomputeCost
from cachegen.manifest import chunk_name
from testbed.batch_service import BatchService, KeptSources
from testbed.prepare import Prepared, PreparedContext, StoredContext
from testbed.trace import load_trace


def prepare(stored, *, has_text=True):
    """What a host has of one context of 56 tokens."""
    continuation_ids = random_tokens(9, seed=5)
    context = PreparedContext(
        index=0,
        name="tiny",
        token_ids=list(stored.cache.token_ids),
        question_ids=random_tokens(4, seed=3),
        continuation_ids=continuation_ids,
        reference_logits=stored.model.continuation_logits(stored.cache, continuation_ids[:-1]),
        task=None,
        reference_answer=None,
        stored={"": StoredContext(stored.manifest.context_key, 56, 0, has_text=has_text, manifest=stored.manifest)},
    )
    return Prepared(stored.model, stored.profile, [context], COSTS, question_s=0.01)


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A host with one context, and the server that has it."""
    stored = store_context(tmp_path_factory.mktemp("store"))
    with running_server(stored.root) as server:
        yield prepare(stored), server.url


def serve(served, arrivals_s, **options):
    """Serve one batch; return its results and events."""
    return serve_batches(served, [arrivals_s], **options)[0]


def serve_batches(
    served,
    batches,
    *,
    method="raw",
    users=None,
    sharing="deadline",
    admission=False,
    slo_s=30.0,
    links=None,
    estimator=None,
    faults=False,
):
    """Serve batches one after the other over kept connections; return results and events of each."""
    prepared, url = served

    def message(arrivals_s):
        return {
            "requests": [
                {"request": index, "context": 0, "arrival_s": arrival_s} for index, arrival_s in enumerate(arrivals_s)
            ],
            "users": users,
            "method": method,
            "label": method,
            "sharing": sharing,
            "estimator": estimator,
            "admission": admission,
            "origin_s": time.monotonic() + 0.02,
            "trace_offset_s": 3.0,
            "delay_ms": 0.0,
            "uplink_delay_ms": None,
            "slo_s": slo_s,
            "timeout_s": 20.0,
            "store_url": url,
            "near_url": None,
            "tokens_at_gpu": False,
            "faults": faults,
        }

    async def run(sources, arrivals_s):
        events = []
        say = lambda kind, **fields: events.append((kind, fields))  # noqa: E731 - a name for one argument below
        return await BatchService(
            prepared, load_trace("lte"), message(arrivals_s), say, links or {}, sources
        ).run(), events

    sources = KeptSources(max(map(len, batches)))
    with asyncio.Runner() as runner:
        found = [runner.run(run(sources, arrivals_s)) for arrivals_s in batches]
        runner.run(sources.close())
    return found


@pytest.mark.parametrize("sharing", ["equal", "deadline"])
@pytest.mark.parametrize("method", ["raw", "text"])
def test_six_at_once_all_have_the_first_token_and_the_quality_of_one(served, sharing, method):
    [alone], _ = serve(served, [0.0], method=method)
    results, events = serve(served, [0.0] * 6, method=method, sharing=sharing)

    for result in results:
        assert result["status"] == "ok"
        assert result["first_token"] == alone["first_token"]
        assert result["kl"] == pytest.approx(0.0, abs=1e-4)
        assert result["bytes"] == alone["bytes"]
        assert sum(result["stages_ms"].values()) == pytest.approx(result["ttft_ms"])
        assert result["ended_s"] == pytest.approx(result["ttft_ms"] / 1e3, abs=0.05)
    assert {fields["request"] for _, fields in events} == set(range(6))


def test_the_controllers_estimator_is_used_unless_another_is_named(served):
    for given, used in ((None, "last-chunk"), ("harmonic-mean", "harmonic-mean")):
        _, events = serve(served, [0.0], estimator=given)
        names = {fields["estimator"] for _, fields in events if fields["event"] == "decision"}
        assert names == {used}


def test_a_later_request_shakes_no_hands(served):
    prepared, url = served
    with SlowLink(int(url.rpartition(":")[2]), 1e9) as link:
        found = serve_batches((prepared, link.url), [[0.0]] * 8)
        # two for an index, three for the first objects; without keeping it would be two a batch at the least
        assert link.connections <= 5
    assert len({results[0]["bytes"] for results, _ in found}) == 1


def test_what_an_oracle_would_have_needed_is_no_longer_than_what_was_needed(served):
    for method in ("raw", "text"):
        [result], _ = serve(served, [0.0], method=method)
        # four chunks at a second each by the costs, which the tiny model does not take
        assert 0 < result["oracle_ttft_ms"] <= 4010
    [streamed], _ = serve(served, [0.0], method="raw")
    assert streamed["oracle_ttft_ms"] < 1000  # 56 tokens over 20 Mbit/s


def test_requests_keep_their_arrivals(served):
    results, _ = serve(served, [0.0, 0.05, 0.2])
    assert [result["arrival_s"] for result in results] == [0.0, 0.05, 0.2]


def test_a_user_of_a_closed_loop_asks_when_the_last_answer_has_begun(served):
    results, _ = serve(served, [0.0] * 5, users=1)
    for before, result in itertools.pairwise(results):
        assert result["arrival_s"] >= before["ended_s"]
    both, _ = serve(served, [0.0] * 4, users=2)
    assert sum(result["arrival_s"] < 0.001 or result["arrival_s"] < both[0]["ended_s"] for result in both) >= 2


def test_a_refused_request_says_why_and_has_no_first_token(served):
    # four seconds of recomputation for each of three, over a host that knows its costs
    links = {"text": LinkKnowledge(800.0, 0.001)}
    results, _ = serve(served, [0.0] * 3, method="text", admission=True, slo_s=9.5, links=links)
    refused = [result for result in results if result["status"] == "aborted"]

    assert [result["status"] for result in results].count("ok") == 2
    assert len(refused) == 1
    assert "deadline" in refused[0]["error"]
    assert "ttft_ms" not in refused[0]
    assert refused[0]["wasted_bytes"] == refused[0]["bytes"] > 0


@pytest.mark.parametrize(("has_text", "status"), [(True, "ok"), (False, "failed")])
def test_a_damaged_chunk_is_waste_and_without_a_text_the_end_of_the_request(tmp_path, has_text, status):
    stored = store_context(tmp_path)
    path = tmp_path / chunk_name(stored.manifest.chunks[1].key, "raw")
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    with running_server(tmp_path) as server:
        [result], _ = serve((prepare(stored, has_text=has_text), server.url), [0.0])

    assert result["status"] == status
    if status == "ok":
        assert result["wasted_bytes"] == path.stat().st_size < result["bytes"]
        assert result["levels"] == {"raw": 3, "recompute": 1}
    else:
        assert result["error"].startswith("StoreError: chunk 1 is not to be had as raw and cannot be recomputed: ")
        assert result["wasted_bytes"] == result["bytes"]


@pytest.mark.parametrize(("faults", "come_as"), [(False, {"raw": 4}), (True, {"recompute": 4})])
def test_a_fixed_level_is_measured_to_its_end_unless_it_is_faults_that_are_looked_at(
    served, monkeypatch, faults, come_as
):
    prepared, url = served
    # a load that would be given up as late a moment after it began, were its patience not infinite
    monkeypatch.setattr("testbed.batch_service.LoadLimits", lambda patience_s=0.2: LoadLimits(patience_s=patience_s))
    with SlowLink(int(url.rpartition(":")[2]), 20_000) as link:
        prepared = replace(prepared, costs=LoadCosts(RecomputeCost(0.001, 0.0, 0.0), reserve_s=0.0))
        [result], _ = serve((prepared, link.url), [0.0], method="raw", slo_s=0.01, faults=faults)
    assert result["levels"] == come_as
