"""Runs over the larger topologies: each does what its picture says, and the bottleneck's bytes are accounted for."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest
from starvation import starved

ROOT = Path(__file__).resolve().parents[2]
SMALL = [
    "--context-tokens",
    "256",
    "--chunk-tokens",
    "32",
    "--slo-ms",
    "1000",
    "--delay-ms",
    "5",
    "--methods",
    "quant4",
]


def run(runs, *flags):
    """Files of a finished run; starved ones are as good here, for nothing below is a matter of speed."""
    command = [sys.executable, str(ROOT / "testbed" / "run.py"), *SMALL, "--runs", str(runs), *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)
    folder = runs / "latest"
    summary = json.loads((folder / "summary.json").read_text())
    reasons = summary["validity"]["reasons"]
    assert done.returncode == (3 if starved(reasons) else 0), done.stdout + done.stderr
    manifest = json.loads((folder / "manifest.json").read_text())
    rows = {
        name: list(csv.DictReader((folder / f"{name}.csv").read_text().splitlines())) for name in ("requests", "link")
    }
    return folder, manifest, summary, rows


def delivered(rows):
    return sum(float(row["delivered_bytes"]) for row in rows["link"])


def received(rows):
    return sum(int(row["bytes"]) for row in rows["requests"])


@pytest.mark.parametrize("kind", ["onoff", "bulk"])
def test_cross_traffic_shares_the_bottleneck_and_is_accounted_for(tmp_path, kind):
    folder, manifest, summary, rows = run(
        tmp_path, "--topology", "dumbbell", "--cross-traffic", kind, "--requests", "2", "--num-contexts", "1"
    )
    assert [row["status"] for row in rows["requests"]] == ["ok", "ok"]
    assert summary["link"]["rtt_ms"] == pytest.approx(10, abs=1.5)
    # far more than the requests' own bytes crossed, and the link was right all the same: judged while a queue stood
    assert delivered(rows) > 1.2 * received(rows)
    assert summary["link"]["busy_seconds"] > 0
    sent = manifest["network"]["cross_traffic_bytes"]
    assert set(sent) == {"storage2-gpu2", "storage2-gpu3"}
    # the windows of the requests are part of the time in which the flows ran
    assert 0 < delivered(rows) - received(rows) < 1.1 * sum(sent.values()) + 0.1 * received(rows)
    spells = [json.loads(line) for line in (folder / "cross_traffic.jsonl").read_text().splitlines()]
    assert sum(spell["sent_bytes"] for spell in spells) == sum(sent.values())


def test_what_the_near_cache_holds_does_not_cross_the_far_link(tmp_path):
    for share in ("0.5", "1"):
        _, manifest, _, rows = run(
            tmp_path, "--topology", "edge_origin", "--near-share", share, "--requests", "1", "--num-contexts", "1"
        )
        (row,) = rows["requests"]
        assert row["status"] == "ok"
        held = manifest["network"]["near_cache"]
        near, far = int(row["near_bytes"]), int(row["bytes"]) - int(row["near_bytes"])
        if share == "1":
            assert (held["near_keys"], far) == (held["keys"], 0)
            assert delivered(rows) == 0
        else:
            assert 0 < held["near_keys"] < held["keys"]
            assert near > 0
            # headers come on top, and nothing else
            assert 1.0 < delivered(rows) / far < 1.15


def test_a_recording_is_replayed_as_what_it_is(tmp_path):
    # two packets of 1,500 bytes each millisecond: 24 Mbit/s
    recording = tmp_path / "my_recording"
    recording.write_text("".join(f"{ms}\n{ms}\n" for ms in range(1, 4001)))
    _, manifest, _, rows = run(tmp_path / "runs", "--trace", str(recording), "--requests", "2")

    assert manifest["trace"]["format"] == "mahimahi"
    assert manifest["trace"]["mean_mbps"] == pytest.approx(24, rel=0.01)
    assert [row["status"] for row in rows["requests"]] == ["ok", "ok"]
    assert float(rows["requests"][0]["link_mbps"]) == pytest.approx(24, rel=0.01)


def test_a_trace_that_has_delays_of_its_own_brings_them(tmp_path):
    _, manifest, _, rows = run(tmp_path, "--trace", "starlink", "--requests", "2")

    assert manifest["trace"]["name"] == "starlink"
    assert [row["status"] for row in rows["requests"]] == ["ok", "ok"]
    # its delays are of 20 ms and more, not the 5 of the flags, and the index and the first object wait for them
    assert all(float(row["ttft_ms"]) > 4 * 20 for row in rows["requests"])
