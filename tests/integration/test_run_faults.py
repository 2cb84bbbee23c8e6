"""Faults through the real testbed: the run stays a result, and its log says what was broken when."""

import json

import pytest
from run_lab import start
from starvation import starved

pytestmark = pytest.mark.alone
METHODS = ("text", "quant8", "cachegen-meet")
SLO_S, PATIENCE_S = 1.0, 5.0
# Recomputing takes half a second here; the rest is for a machine with other work.
RECOMPUTE_S = 4.0
# What codecs and recomputing differ from the reference by; a wrong cache diverges by whole units.
MOST_KL = 0.05


def run(folder, faults, *flags):
    with start(folder, "--requests", "1", "--num-contexts", "1", "--faults", faults, *flags) as process:
        output, _ = process.communicate(timeout=200)
    summary = json.loads((folder / "latest" / "summary.json").read_text())
    assert process.returncode == (3 if starved(summary["validity"]["reasons"]) else 0), output
    events = [json.loads(line) for line in (folder / "latest" / "events.jsonl").read_text().splitlines()]
    assert json.loads((folder / "latest" / "config.json").read_text())["faults"] == faults
    return summary, events


def check_injected_once(events, method, faults):
    kinds = [(event["event"], event["fault"]) for event in events if event["method"] == method and "fault" in event]
    for fault in faults.split(","):
        assert kinds.count(("fault", fault)) == kinds.count(("fault_ended", fault)) == 1


@pytest.mark.parametrize(
    "faults",
    [
        "kill-server@0.02s+0.5s",
        "stall-server@0.02s+3s,link-down@0.05s+1s",
        "slow-disk@0s",
        "clock-jump@0.02s+0.1s",
        "corrupt:50%@0s,missing:20%@0s,disk-full@0s",
        "foreign-profile@0s",
        "corrupt-manifest@0s,foreign-chunk:100%@0s",
    ],
)
def test_every_request_of_a_run_with_faults_ends_in_time_with_the_right_text(tmp_path, faults):
    summary, events = run(tmp_path, faults, "--methods", ",".join(METHODS))

    for method in METHODS:
        row = summary["methods"][method]
        assert row["completed"] == 1
        assert row["kl_mean"] < MOST_KL
        assert row["ttft_ms"]["mean"] < 1e3 * (SLO_S + PATIENCE_S + RECOMPUTE_S)
        check_injected_once(events, method, faults)


def test_a_store_of_another_profile_ends_in_recomputing_by_name(tmp_path):
    summary, events = run(tmp_path, "foreign-profile@0s", "--methods", "quant8")

    assert summary["methods"]["quant8"]["levels"] == {"recompute": 1}
    [given_up] = [event["error"] for event in events if event["event"] == "index_given_up"]
    assert "profile hash" in given_up


def test_damaged_tokens_fail_by_name_unless_the_tokens_are_at_hand(tmp_path):
    for number, (flags, completed) in enumerate([((), 0), (("--tokens-at-gpu",), 1)]):
        summary, events = run(tmp_path / str(number), "corrupt-tokens@0s", "--methods", "quant8", *flags)

        assert summary["methods"]["quant8"]["completed"] == completed
        assert summary["methods"]["quant8"]["violation_classes"]["failed"] == 1 - completed
        check_injected_once(events, "quant8", "corrupt-tokens@0s")
