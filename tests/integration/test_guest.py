"""The netem half of the link's tests, in a guest kernel that has it, whatever this machine's own kernel lacks."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.alone

BOOT = Path(__file__).resolve().parents[1] / "guest" / "boot.py"
NO_GUEST = 3  # boot.py's status where the guest did not come as far as its tests


@pytest.mark.skipif(
    shutil.which("linux.uml") is None,
    reason="no guest kernel: apt-get install --no-install-recommends user-mode-linux kmod",
)
@pytest.mark.timeout(600)  # a minute or two; a slow machine pays for all of Python's start in the guest
def test_netem_passes_the_tests_of_the_link_in_a_guest_kernel():
    done = subprocess.run([sys.executable, BOOT], capture_output=True, text=True, timeout=560, check=False)
    if done.returncode == NO_GUEST:
        pytest.skip(f"this machine cannot run the guest kernel: {(done.stdout + done.stderr)[-300:]}")
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout
    assert " skipped" not in done.stdout, "the guest's kernel has what the tests need"
