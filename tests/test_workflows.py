"""The workflows are YAML, and what they call is there."""

import re
import shlex
import subprocess
import sys
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


def test_every_comparison_keeps_its_runs_and_all_its_reports_whatever_comes_of_it():
    jobs = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())["jobs"]
    names = []
    for script in (".ci/compare", ".ci/compare-virtual"):
        [(job, words)] = [
            (job, shlex.split(step["run"]))
            for job in jobs.values()
            for step in job["steps"]
            if step.get("run", "").startswith(f"{script} ")
        ]
        folder = words[2]
        flags = dict(zip(words[3::2], words[4::2], strict=True))
        assert set(flags) == {"--markdown", "--junit", "--json"}
        assert {str(Path(path).parent) for path in flags.values()} == {folder}
        [keep] = [step for step in job["steps"] if step.get("uses", "").startswith("actions/upload-artifact@")]
        assert (keep["if"], keep["with"]["path"]) == ("always()", folder)
        names.append(keep["with"]["name"])
        [show] = [step for step in job["steps"] if "$GITHUB_STEP_SUMMARY" in step.get("run", "")]
        assert show["if"] == "always()"
        assert flags["--markdown"] in show["run"]
    assert len(set(names)) == 2


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


# stands for the Python that starts a run: writes one without a network, the first of NEW's INVALID
_RUNNER = """#!{python}
import sys
sys.path[:0] = [{root!r}, {tests!r}]
from pathlib import Path
from synthetic_runs import draw_rows, write_run
checkout, flags = Path(sys.argv[1]).parent.parent, sys.argv[2:]
parent, seed = Path(flags[flags.index("--runs") + 1]), int(flags[flags.index("--seed") + 1])
log = parent.parent / "log.txt"
lines = log.read_text().splitlines() if log.exists() else []
invalid = parent.name == "new" and not any(line.startswith("new") for line in lines)
log.write_text("\\n".join([*lines, f"{{parent.name}} {{seed}} {{checkout.resolve() == Path({root!r})}}"]))
summary = {{"validity": {{"verdict": "INVALID", "reasons": [], "notes": []}}}} if invalid else None
rows = draw_rows(parent.name, 10, ["text", "cachegen"], seed=seed)
run = write_run(parent, rows, config={{"seed": seed}}, summary=summary)
latest = parent / "latest"
latest.unlink(missing_ok=True)
latest.symlink_to(run.name)
sys.exit(3 if invalid else 0)
"""


def test_the_comparing_script_takes_turns_repeats_an_invalid_run_and_leaves_no_checkout(tmp_path, monkeypatch):
    runner = tmp_path / "runner"
    runner.write_text(_RUNNER.format(python=sys.executable, root=str(ROOT), tests=str(ROOT / "tests/testbed")))
    runner.chmod(0o755)
    monkeypatch.setenv("PYTHON", str(runner))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    out = tmp_path / "out"
    command = [ROOT / ".ci/compare", "HEAD", out, "--markdown", out / "compare.md"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert (out / "log.txt").read_text().splitlines() == [
        "base 0 False",
        "new 0 True",
        "new 0 True",
        "new 1 True",
        "base 1 False",
        "base 2 False",
        "new 2 True",
    ]
    assert len(list((out / "invalid").iterdir())) == 1
    assert (out / "compare.md").read_text() == done.stdout
    assert "of 2 scenario and method" in done.stdout
    checkouts = subprocess.run(["git", "worktree", "list"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert str(tmp_path) not in checkouts.stdout
