"""The workflows are YAML, and what they call is there."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml

from testbed.arguments import parse_arguments as parse_run
from testbed.compare.__main__ import parse_arguments as parse_compare

ROOT = Path(__file__).resolve().parent.parent
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
SCRIPTS = sorted(path for path in (ROOT / ".ci").iterdir())


def steps():
    for path in WORKFLOWS:
        for job in yaml.safe_load(path.read_text())["jobs"].values():
            yield from job["steps"]


def test_there_is_a_workflow_that_tests_and_one_that_compares():
    commands = " ".join(step.get("run", "") for step in steps())
    assert ".ci/run" in commands
    assert ".ci/compare" in commands
    assert "$GITHUB_STEP_SUMMARY" in commands


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_has_the_parts_it_needs(path):
    workflow = yaml.safe_load(path.read_text())
    # YAML 1.1 reads the key `on` as true
    assert set(workflow[True]) >= {"push", "pull_request"}
    assert workflow["permissions"] == {"contents": "read"}
    for job in workflow["jobs"].values():
        assert job["timeout-minutes"] <= 60
        assert all(("run" in step) != ("uses" in step) for step in job["steps"])


def test_every_script_and_make_target_that_a_workflow_calls_is_there():
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for step in steps():
        for words in map(shlex.split, step.get("run", "").splitlines()):
            if words[0] == "make":
                assert words[1] in targets
            if words[0].startswith(".ci/"):
                assert ROOT / words[0] in SCRIPTS


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_a_script_can_be_executed_and_is_bash(path):
    assert path.stat().st_mode & 0o111
    subprocess.run(["bash", "-n", path], check=True)


def test_the_comparing_script_uses_flags_that_exist():
    script = (ROOT / ".ci/compare").read_text().replace("\\\n", " ")
    [run] = re.findall(r"testbed/run\.py\" (.*) \|\|", script)
    [compare] = re.findall(r"-m testbed\.compare (.*) \"\$@\"", script)
    options = parse_run(shlex.split(run.replace('"$3"', "0")))
    assert options.requests * 3 >= 25, "with fewer places no verdict of equivalence fits a margin of 10 pp"
    assert parse_compare(shlex.split(compare)).margin == 0.1


def test_the_comparing_script_refuses_what_is_no_commit(tmp_path):
    done = subprocess.run(
        [ROOT / ".ci/compare", "0" * 40, tmp_path / "out"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr == f".ci/compare: no commit {'0' * 40} here\n"
    assert not (tmp_path / "out").exists()
