"""Commands as an unprivileged user, even where this Python or the project lies in root's closed home."""

import os
import shlex
import stat
import sys
from pathlib import Path

NOBODY = "setpriv --reuid=65534 --regid=65534 --clear-groups"


def unprivileged(argv, project):
    """Return the command that runs ``argv`` as nobody, or ``argv`` itself where nobody here is root.

    A closed folder above one that is needed is covered, in a mount namespace of the command's own, by an empty
    folder that holds just what is needed.
    """
    if os.geteuid() != 0:
        return argv
    needed = [Path(path).resolve() for path in (sys.base_prefix, sys.prefix, project)]
    doors = [(closed, folder) for folder in needed if (closed := _closed_above(folder)) is not None]
    lines = ["set -eu", "mount -t tmpfs tmpfs /mnt"]
    for count, (_, folder) in enumerate(doors):
        lines += [f"mkdir /mnt/{count}", f"mount --bind {shlex.quote(str(folder))} /mnt/{count}"]
    for closed in sorted({str(closed) for closed, _ in doors}):
        lines.append(f"mount -t tmpfs -o mode=755 tmpfs {shlex.quote(closed)}")
    for count, (_, folder) in enumerate(doors):
        lines += [f"mkdir -p {shlex.quote(str(folder))}", f"mount --bind /mnt/{count} {shlex.quote(str(folder))}"]
    lines.append(f'exec {NOBODY} "$@"')
    return ["unshare", "--mount", "--propagation", "private", "bash", "-c", "\n".join(lines), "unprivileged", *argv]


def _closed_above(folder):
    """The topmost folder on the way that others may not enter; None if the way is open."""
    for step in (*reversed(folder.parents), folder):
        if not step.stat().st_mode & stat.S_IXOTH:
            return step
    return None
