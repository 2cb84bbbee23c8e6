"""A run's directory."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest

from cachegen import InvalidInputError
from testbed.metrics import STAGES, RequestRow
from testbed.run_dir import RunDir
from testbed.trace import load_trace, parse_trace

ROOT = Path(__file__).resolve().parents[2]
ROW = RequestRow(
    request=1,
    method="cachegen",
    context="c, with a comma",
    trace_offset_s=1.5,
    slo_ms=4000.0,
    status="ok",
    ttft_ms=2100.0,
    stages_ms=dict.fromkeys(STAGES, 350.0),
    bytes=12345,
    kl=0.01,
    agreement=0.97,
    dppl=-0.1,
    levels={"cachegen-2": 3, "recompute": 1},
    link_mbps=20.0,
)


def test_a_store_is_removed_when_its_run_is_gone_and_not_before(tmp_path):
    running = RunDir(tmp_path, "lte")
    (running.store / "object").touch()
    script = "import sys, os; from pathlib import Path; from testbed.run_dir import RunDir\n" + (
        "RunDir(Path(sys.argv[1]), 'killed').store.joinpath('object').touch(); os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], cwd=ROOT, check=False)
    [killed] = tmp_path.glob("*-killed")
    assert (killed / "store" / "object").exists()
    RunDir(tmp_path, "lte")

    assert not (killed / "store").exists()
    assert (running.store / "object").exists()


def test_two_runs_of_one_second_get_two_directories_and_latest_is_the_newer(tmp_path):
    runs = [RunDir(tmp_path, "lte") for _ in range(3)]
    for run in runs:
        run.publish()
    assert len({run.path for run in runs}) == 3
    assert (tmp_path / "latest").resolve() == runs[-1].path


def test_a_folder_that_takes_no_run_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InvalidInputError, match=f"no run directory can be made in {tmp_path}/file/runs: Not a dir"):
        RunDir(tmp_path / "file" / "runs", "lte")


def test_rows_of_requests_carry_the_names_of_the_summary(tmp_path):
    run = RunDir(tmp_path, "lte")
    run.add_request(ROW)
    run.add_request(RequestRow(request=2, method="text", context="c", trace_offset_s=0.0, slo_ms=1.0, status="failed"))
    with (run.path / "requests.csv").open(newline="") as file:
        first, second = csv.DictReader(file)

    assert first["context"] == "c, with a comma"
    assert float(first["ttft_ms"]) == sum(float(first[f"stages_ms.{stage}"]) for stage in STAGES)
    assert json.loads(first["levels"]) == ROW.levels
    assert (first["violation"], second["violation"]) == ("0", "1")
    assert second["ttft_ms"] == second["kl"] == second["stages_ms.fetch"] == ""


def test_json_files_are_replaced_whole_and_hold_no_nan(tmp_path):
    run = RunDir(tmp_path, "lte")
    run.write_json("summary.json", {"a": 1})
    with pytest.raises(ValueError, match="JSON compliant"):
        run.write_json("summary.json", {"a": float("nan")})

    assert json.loads((run.path / "summary.json").read_text()) == {"a": 1}
    assert {path.name for path in run.path.iterdir()} == {"store", "summary.json"}


@pytest.mark.parametrize(
    "recording",
    [
        b"time_s,rate_mbps\n0,8\n",
        b"time_s,rate_mbps,delay_ms\n0,8,30\n10,0,13\n",
        b'[{"duration_ms": 1013, "bandwidth_kbps": 1285}, {"duration_ms": 500, "bandwidth_kbps": 1693}]',
    ],
)
def test_the_trace_that_a_run_keeps_replays_as_its_own_did(tmp_path, recording):
    trace, run = parse_trace(recording, Path("recording")), RunDir(tmp_path, "kept")
    run.write_trace(trace)
    kept = load_trace(run.path / "trace.csv")

    assert (kept.period_s, kept.format_name) == (pytest.approx(trace.period_s), "csv")
    for index in range(200):
        moment = index * trace.period_s / 100
        assert kept.capacity_bytes(0.0, moment) == pytest.approx(trace.capacity_bytes(0.0, moment))
        if trace.delays_ms is not None:
            assert next(kept.steps(moment)).delay_ms == next(trace.steps(moment)).delay_ms
