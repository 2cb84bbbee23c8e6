"""The selftest as a user runs it: every demand met, or missed beside other work, which it says."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.alone
ROOT = Path(__file__).resolve().parents[2]


def test_the_quick_selftest_measures_everything_and_finds_starvation_out(tmp_path):
    command = [sys.executable, "-m", "testbed.selftest", "--quick", "--json", str(tmp_path / "selftest.json")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200, check=False)
    assert (tmp_path / "selftest.json").exists(), done.stderr
    found = json.loads((tmp_path / "selftest.json").read_text())
    lines = {line["what"]: line for line in found["lines"]}

    assert done.returncode == {"MET": 0, "MISSED": 3}[found["verdict"]]
    # what is missed is the machine's own: one that others use for milliseconds at a time is late without being starved
    assert found["missed"] == [what for what, line in lines.items() if not line["is_right"]], done.stdout
    starved = lines["starved on purpose"]["figures"]
    assert starved["verdict"] == "INVALID"
    assert any("the processors were starved" in reason for reason in starved["reasons"])
    for name in ("loss, bursts of 1", "queue", "outage"):
        assert lines[name]["is_right"] or found["notes"], lines[name]
    rates = [line["figures"] for line in found["lines"] if "busy_tenths" in line["figures"]]
    assert {one["flow"] for one in rates} == {"cubic", "udp"}
    # no load makes a link wrong by a tenth: its shaper lives in the kernel
    assert all(one["error_mean"] is None or one["error_mean"] < 0.1 for one in rates)
