"""What is left when the main job is stopped, killed, broken or refused."""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest
from run_lab import ROOT, finished_well, processes_that_name, read_until, start, wait_until_gone

# More requests than it will come to, on one context.
LONG = ["--requests", "50", "--num-contexts", "1", "--methods", "text,quant8"]


def test_ctrl_c_leaves_a_readable_partial_result_and_no_process(tmp_path):
    with start(tmp_path, *LONG) as process:
        read_until(process, "request 0 quant8")
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=30)

    assert process.returncode == 130, output
    wait_until_gone(tmp_path)
    summary = json.loads((tmp_path / "latest" / "summary.json").read_text())
    assert summary["status"] == "interrupted"
    assert summary["methods"]["text"]["requests"] >= 1
    assert "partial result" in (tmp_path / "latest" / "report.md").read_text()


@pytest.mark.parametrize("moment", ["run directory", "warm up", "request 0 text"])
def test_a_killed_run_leaves_no_process_and_the_next_one_works(tmp_path, moment):
    with start(tmp_path, *LONG) as process:
        read_until(process, moment)
        process.kill()
    wait_until_gone(tmp_path)
    [left] = [path for path in tmp_path.iterdir() if path.name != "latest"]
    # the process inside may see the end of the one outside before it is ended itself
    assert json.loads((left / "summary.json").read_text())["status"] in {"running", "interrupted"}

    if moment == "request 0 text":
        again = start(tmp_path, "--requests", "1", "--num-contexts", "1", "--methods", "quant4")
        output, _ = again.communicate(timeout=100)
        assert finished_well(again.returncode, tmp_path), output
        assert len([path for path in tmp_path.iterdir() if path.name != "latest"]) == 2
        assert not (left / "store").exists()


@pytest.mark.parametrize("program", ["cachegen\0serve", "testbed.relay", "testbed.inference_host"])
def test_death_of_a_program_breaks_the_run_off_and_the_result_says_so(tmp_path, program):
    environment = {**os.environ, "RUN_OF_THIS_TEST": str(tmp_path)}
    with start(tmp_path, *LONG, "--request-timeout-s", "3", env=environment) as process:
        read_until(process, "request 0 quant8")
        for pid in processes_that_name(tmp_path):
            if program.encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGKILL)
        output, _ = process.communicate(timeout=60)

    assert process.returncode == 5, output
    wait_until_gone(tmp_path)
    summary = json.loads((tmp_path / "latest" / "summary.json").read_text())
    assert summary["status"] == "broken"
    assert "broken off: " in summary["validity"]["notes"][0]
    # no request is blamed for it
    assert all(figures["completed"] == figures["requests"] for figures in summary["methods"].values())
    assert "partial result" in (tmp_path / "latest" / "report.md").read_text()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--methods", "gzip"], "no method 'gzip'"),
        (["--trace", "no-such-trace"], "no-such-trace"),
        (["--topology", "ring"], "no topology"),
        (["--contexts", "/no/such/file.jsonl"], "/no/such/file.jsonl"),
        (["--model", "/no/such/model"], "/no/such/model"),
    ],
)
def test_bad_input_is_refused_with_a_reason(tmp_path, flags, message):
    process = start(tmp_path, *flags)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 2, output
    assert message in output
    assert "Traceback" not in output


def test_help_reads_well_and_needs_nothing_installed(tmp_path):
    command = ["/usr/bin/python3", str(ROOT / "testbed" / "run.py"), "--help"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    for word in ("--trace", "--slo-ms", "exit status", "cachegen-0 ... cachegen-4"):
        assert word in done.stdout
