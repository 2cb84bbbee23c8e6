"""Run the netem tests in a guest kernel that has netem: ``python tests/guest/boot.py [TEST...]``, as any user.

The guest is user-mode Linux (Debian's package user-mode-linux): a kernel that runs as a program of this machine, on its
own files, read-only. It has no network but what the tests make in it. Its exit status is pytest's.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
KERNEL = "linux.uml"
MEMORY = "2048M"
TIMEOUT_S = 600


def command(folder, tests):
    """The guest's command line; its arguments hold no spaces, and what the kernel does not know becomes environment."""
    return [
        KERNEL,
        f"mem={MEMORY}",
        *("root=/dev/root", "rootfstype=hostfs", "rootflags=/", "ro", "quiet"),
        *("con=null", "con0=fd:0,fd:1", "ssl=null"),
        # its control socket: the default lies in the home folder
        *(f"uml_dir={folder}", f"umid=guest{os.getpid()}"),
        f"init={ROOT / 'tests/guest/init.sh'}",
        *(f"PROJECT={ROOT}", f"PYTHON={sys.executable}", f"TESTS={','.join(tests)}"),
    ]


def main():
    if shutil.which(KERNEL) is None:
        sys.stderr.write(
            "the guest's kernel is missing: apt-get install --no-install-recommends user-mode-linux kmod\n"
        )
        return 2
    tests = sys.argv[1:] or ["tests/integration/test_link.py"]
    with tempfile.TemporaryDirectory() as folder:
        # the guest's memory is a file in TMPDIR
        environment = {**os.environ, "TMPDIR": "/dev/shm"}
        guest = subprocess.Popen(
            command(folder, tests), env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
        )
        status = None
        try:
            for line in guest.stdout:
                sys.stdout.write(line)
                sys.stdout.flush()
                if found := re.match(r"GUEST STATUS (\d+)", line):
                    status = int(found[1])
        finally:
            guest.kill()
            guest.wait()
    return 3 if status is None else status


if __name__ == "__main__":
    sys.exit(main())
