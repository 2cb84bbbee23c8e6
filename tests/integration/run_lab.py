"""Start the main job on a small context, follow it, and read what it left."""

import csv
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from starvation import starved

ROOT = Path(__file__).resolve().parents[2]
# Contexts an eighth as long as usual, over a link that suits them; everything else is the real thing.
SMALL = ["--context-tokens", "256", "--chunk-tokens", "64", "--slo-ms", "1000", "--delay-ms", "5"]


def start(runs, *flags, **options):
    command = [sys.executable, str(ROOT / "testbed" / "run.py"), *SMALL, "--runs", str(runs), *flags]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)


def processes_that_name(path):
    """Pids of all processes on this machine, in any namespace, whose command line or environment names a path."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                words = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue
            if str(path).encode() in words:
                found.append(int(entry.name))
    return found


def wait_until_gone(path):
    deadline_s = time.monotonic() + 10
    while processes_that_name(path):
        assert time.monotonic() < deadline_s, f"still running: {processes_that_name(path)}"
        time.sleep(0.05)


def read_until(process, words):
    """Read output lines until one has the words."""
    lines = []
    for line in process.stdout:
        lines.append(line)
        if words in line:
            return lines
    raise AssertionError(f"{words!r} never came:\n{''.join(lines)}")


def finished_well(status, folder):
    """Whether a run ended as valid, or as starved by other work on the machine and by nothing else."""
    validity = load_summary(folder)["validity"]
    return status == (3 if starved(validity["reasons"]) else 0)


def load_summary(folder):
    return json.loads((folder / "latest" / "summary.json").read_text())


def read_rows(folder, name):
    with (folder / "latest" / name).open(newline="") as file:
        return list(csv.DictReader(file))
