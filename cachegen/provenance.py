"""What a result depends on besides its settings: code, machine, software."""

import importlib.metadata
import os
import platform
import subprocess
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parent.parent


def describe_environment(command: Sequence[str], packages: Iterable[str]) -> dict[str, Any]:
    """Facts about command, code, host and software, to stand beside a result.

    Parameters
    ----------
    command : sequence of str
        What the user typed.
    packages : iterable of str
        Installed distributions whose versions matter.
    """
    return {
        "started_utc": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
        "command": list(command),
        "git": {"commit": _git("rev-parse", "HEAD"), "dirty": bool(_git("status", "--porcelain"))},
        "host": {
            "kernel": platform.release(),
            "machine": platform.machine(),
            "cpu": _cpu_model(),
            "cores": len(os.sched_getaffinity(0)),
            "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        },
        "python": platform.python_version(),
        "packages": {name: importlib.metadata.version(name) for name in packages},
    }


def _git(*arguments: str) -> str | None:
    """Output of git, None where there is no git or no repository (an unpacked archive)."""
    # safe.directory: the run may be root's and the checkout another user's
    command = ["git", "-c", f"safe.directory={_ROOT}", "-C", str(_ROOT), *arguments]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()
