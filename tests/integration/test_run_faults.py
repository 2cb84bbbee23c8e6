"""Faults through the real testbed: the run stays a result, and its log says what was broken when."""

import json

import pytest
from starvation import starved
from test_run import start


def run(folder, faults, *flags):
    with start(folder, "--requests", "1", "--num-contexts", "1", "--faults", faults, *flags) as process:
        output, _ = process.communicate(timeout=200)
    summary = json.loads((folder / "latest" / "summary.json").read_text())
    assert process.returncode == (3 if starved(summary["validity"]["reasons"]) else 0), output
    events = [json.loads(line) for line in (folder / "latest" / "events.jsonl").read_text().splitlines()]
    return summary, events


@pytest.mark.parametrize(
    "faults",
    ["kill-server@0.1s+0.5s", "stall-server@0.1s+3s,link-down@0.3s+1s", "corrupt:50%@0s,missing:20%@0s,disk-full@0s"],
)
def test_every_request_of_a_run_with_faults_ends_with_the_right_text(tmp_path, faults):
    summary, events = run(tmp_path, faults, "--methods", "text,quant8,cachegen-meet")

    for method in ("text", "quant8", "cachegen-meet"):
        assert summary["methods"][method]["completed"] == 1
        # a wrong cache diverges by whole units
        assert summary["methods"][method]["kl_mean"] < 0.2
        kinds = [(event["event"], event["fault"]) for event in events if event["method"] == method and "fault" in event]
        for fault in faults.split(","):
            assert kinds.count(("fault", fault)) == kinds.count(("fault_ended", fault)) <= 1
    assert json.loads((tmp_path / "latest" / "config.json").read_text())["faults"] == faults


def test_a_store_of_another_profile_ends_in_recomputing_where_the_tokens_are_at_hand(tmp_path):
    summary, events = run(tmp_path, "foreign-profile@0s", "--methods", "quant8", "--tokens-at-gpu")
    assert summary["methods"]["quant8"]["completed"] == 1
    assert any(event["event"] == "fault" for event in events)
