"""The soak in short: fifty requests beside writers, eviction and random faults."""

from bench.soak import soak


def test_fifty_requests_among_faults_give_no_wrong_token_and_leave_nothing_behind(tmp_path):
    summary = soak(tmp_path.resolve(), requests=50, seed=1)

    assert summary["problems"] == []
    assert sum(summary["outcomes"].values()) == 50
    assert summary["outcomes"]["right"] >= 40
    assert sum(summary["faults"].values()) > 0
