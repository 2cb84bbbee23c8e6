"""The main job, end to end: real model, real link, real report."""

import itertools
import json
import subprocess
import sys

import pytest
from run_lab import ROOT, finished_well, load_summary, read_rows, start, wait_until_gone
from starvation import starved

from testbed.metrics import STAGES

METHODS = ["text", "quant8", "quant4", "cachegen", "cachegen-meet"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Two runs at the same time, with the same seed, from foreign directories whose modules are not the project's."""
    folders = [tmp_path_factory.mktemp(name) for name in ("one", "two")]
    for folder, module in itertools.product(folders, ("testbed", "cachegen", "statistics")):
        (folder / f"{module}.py").write_text("raise SystemExit('a module of the folder that the user stood in')\n")
    flags = ["--requests", "2", "--num-contexts", "2"]
    processes = [start(folders[0], *flags, "--pcap", cwd=folders[0]), start(folders[1], *flags, cwd=folders[1])]
    outputs = [process.communicate(timeout=200)[0] for process in processes]
    for process, folder, output in zip(processes, folders, outputs, strict=True):
        # two runs on two cores may starve each other
        assert finished_well(process.returncode, folder), output
    return list(zip(folders, outputs, strict=True))


def load(finished, name):
    return json.loads((finished[0][0] / "latest" / name).read_text())


def test_two_runs_at_once_are_judged_and_share_the_schedule(finished):
    offsets = []
    for folder, output in finished:
        assert "VALID" in output
        offsets.append(
            [(row["request"], row["method"], row["trace_offset_s"]) for row in read_rows(folder, "requests.csv")]
        )
    assert offsets[0] == offsets[1]


def test_the_summary_has_its_core(finished):
    summary = load(finished, "summary.json")
    assert summary["schema"] == 1
    reasons = summary["validity"]["reasons"]
    assert starved(reasons) or reasons == []
    assert summary["validity"]["verdict"] == ("INVALID" if reasons else "VALID")
    assert summary["validity"]["notes"] == []
    assert summary["slo"] == {"ttft_ms": 1000.0}
    assert (summary["trace"], summary["model"]) == ("lte", "SmolLM2-135M-Instruct")
    assert 0 <= summary["link"]["rate_error_mean"] <= summary["link"]["rate_error_p95"] < (0.5 if reasons else 0.05)
    assert summary["link"]["rtt_ms"] == pytest.approx(10, abs=1.5)
    assert list(summary["methods"]) == METHODS
    for figures in summary["methods"].values():
        assert figures["requests"] == 2
        assert figures["violations"] == round(2 * figures["slo_violation_rate"])
        assert sum(figures["stages_ms"].values()) == pytest.approx(figures["ttft_ms"]["mean"], abs=1)


def test_every_requests_stages_sum_to_its_ttft(finished):
    rows = read_rows(finished[0][0], "requests.csv")
    assert len(rows) == 2 * len(METHODS)
    for row in rows:
        assert row["status"] == "ok"
        assert sum(float(row[f"stages_ms.{stage}"]) for stage in STAGES) == pytest.approx(float(row["ttft_ms"]), abs=1)
        assert sum(json.loads(row["levels"]).values()) == 4
        assert 0 <= int(row["wasted_bytes"]) < int(row["bytes"])


def test_every_request_has_the_same_trace_offset_and_context_under_every_method(finished):
    by_request = {}
    for row in read_rows(finished[0][0], "requests.csv"):
        by_request.setdefault(row["request"], set()).add((row["trace_offset_s"], row["context"]))
    assert all(len(found) == 1 for found in by_request.values())
    assert len(set.union(*by_request.values())) == 2


def test_methods_do_what_their_name_says(finished):
    methods = load(finished, "summary.json")["methods"]
    assert methods["text"]["levels"] == {"recompute": 8}
    assert methods["text"]["stages_ms"]["decode"] == 0
    assert methods["quant8"]["levels"] == {"quant8": 8}
    assert methods["quant4"]["bytes_mean"] < 0.55 * methods["quant8"]["bytes_mean"]
    assert methods["quant8"]["bytes_mean"] > 256 * 23040 / 2
    assert methods["text"]["kl_mean"] < 1e-3
    assert methods["quant8"]["kl_mean"] < methods["quant4"]["kl_mean"]


def serving(event):
    return event["request"], event["method"]


def test_every_decision_is_logged_with_what_it_knew(finished):
    lines = (finished[0][0] / "latest" / "events.jsonl").read_text().splitlines()
    decisions = [event for event in map(json.loads, lines) if event["event"] == "decision"]
    # meet may decide on a chunk anew
    assert len(decisions) >= 2 * len(METHODS) * 4
    assert all("recompute" in event["finish_s"] and event["reason"] for event in decisions)
    for event in decisions:
        assert event["remaining_s"] == event["deadline_s"] - event["elapsed_s"]
        assert event["estimator"] == ("two-speed" if event["method"] == "cachegen-meet" else "last-chunk")
        assert event["flying_bytes"] == event["ahead_bytes"] == 0
    assert any(event["planned_finish_s"] for event in decisions if event["method"] == "cachegen-meet")
    # afterwards what came of them
    ends = [event for event in map(json.loads, lines) if event["event"] == "loaded"]
    assert len(ends) == 2 * len(METHODS)
    for event in ends:
        last_s = max(other["elapsed_s"] for other in decisions if serving(other) == serving(event))
        assert event["ended_s"] > last_s
        assert (event["recomputed"] == [0, 1, 2, 3]) == (not event["bytes_by_encoding"])


def test_link_rows_add_up_to_what_was_received(finished):
    received = {}
    for row in read_rows(finished[0][0], "link.csv"):
        key = (row["request"], row["method"])
        received[key] = received.get(key, 0) + float(row["delivered_bytes"])
    for row in read_rows(finished[0][0], "requests.csv"):
        on_the_wire = received[row["request"], row["method"]]
        # headers of Ethernet, IP and TCP, and of HTTP, come on top
        assert 1.0 < on_the_wire / float(row["bytes"]) < 1.12 or float(row["bytes"]) < 20_000


def test_the_report_names_every_method_and_says_why(finished):
    report = (finished[0][0] / "latest" / "report.md").read_text()
    for method in METHODS:
        assert f"- **{method}**: " in report
    assert "SLO in " in report
    assert "ttft.svg" in report
    assert (finished[0][0] / "latest" / "ttft.svg").read_text().lstrip().startswith("<?xml")


def test_the_manifest_says_what_the_result_depends_on(finished):
    manifest, config = load(finished, "manifest.json"), load(finished, "config.json")
    assert len(manifest["trace"]["sha256"]) == 64
    assert (manifest["trace"]["format"], manifest["trace"]["mean_mbps"]) == ("csv", pytest.approx(20.92, abs=0.01))
    assert "trace lte: format csv, mean 20.92 Mbit/s (1.537 to 50), 120 s" in finished[0][1]
    assert len(manifest["inference"]["profile_hash"]) == 64
    assert manifest["network"]["congestion_control"] == "cubic"
    assert manifest["packages"]["torch"]
    assert config["seed"] == 0


def test_nothing_but_the_result_is_left(finished):
    for folder, _ in finished:
        wait_until_gone(folder)
        names = {path.name for path in (folder / "latest").iterdir()}
        assert names >= {"config.json", "manifest.json", "summary.json", "requests.csv", "link.csv"}
        assert names >= {"report.html", "report.md", "requests.parquet"}
        assert "store" not in names


def test_the_packets_alone_confirm_the_run(finished):
    run = finished[0][0] / "latest"
    command = [sys.executable, "-m", "testbed.packets", str(run)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    lines = {line[6:].split()[0]: line for line in done.stdout.splitlines()[:-1]}

    assert set(lines) == {"captured", "rate", "round", "retransmissions", "loss", "confinement"}, done.stderr
    for name in ("captured", "retransmissions", "loss", "confinement"):
        assert lines[name].startswith("ok "), done.stdout
    if not starved(load(finished, "summary.json")["validity"]["reasons"]):
        assert done.returncode == 0, done.stdout
    assert " 0 missed" in lines["captured"]
    # what the packets say they carried is what the run counted
    counted = load(finished, "manifest.json")["delay_node"]["passed"]["down"]
    assert int(lines["loss"].partition(" of ")[2].split()[0]) >= counted > 1000


def test_a_run_without_captures_has_no_packets_to_ask(finished):
    command = [sys.executable, "-m", "testbed.packets", str(finished[1][0] / "latest")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)

    assert done.returncode == 2
    assert "--pcap" in done.stderr


def test_the_processors_were_watched_and_the_round_trip_taken_twice(finished):
    cpu = load(finished, "summary.json")["link"]["cpu"]
    network = load(finished, "manifest.json")["network"]

    assert cpu["own"] > 0
    assert cpu["own"] + cpu["foreign"] + cpu["idle"] + cpu["steal"] == pytest.approx(1, abs=0.15)
    assert network["rtt_after_ms"]["count"] > 0


def test_a_burst_on_one_link_ends_with_its_reports(tmp_path):
    flags = ["--arrivals", "burst:2", "--requests", "2", "--methods", "cachegen-meet", "--pcap"]
    process = start(tmp_path, *flags)
    output, _ = process.communicate(timeout=200)

    assert finished_well(process.returncode, tmp_path), output
    run = tmp_path / "latest"
    report = (run / "report.md").read_text()
    assert "- **cachegen-meet**: " in report
    assert "| wasted MB | fairness |" in report
    assert (run / "report.html").stat().st_size > 10_000
    assert {(row["request"], row["batch"]) for row in read_rows(tmp_path, "link.csv")} == {("", "0")}
    delivered = sum(float(row["delivered_bytes"]) for row in read_rows(tmp_path, "link.csv"))
    assert delivered > sum(float(row["bytes"]) for row in read_rows(tmp_path, "requests.csv"))
    link = load_summary(tmp_path)["link"]
    assert link["queue_max_bytes"] > 0
    assert link["excess_ms"] >= 0
    assert link["losses"]["down"]["frames"] > link["losses"]["down"]["lost"] == 0
    command = [sys.executable, "-m", "testbed.packets", str(run)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode in {0, 3}, done.stderr
