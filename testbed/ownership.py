"""Under sudo, give what was made back to the user who asked: else the next run without sudo could not write."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path


def give_back(paths: Iterable[Path], environment: Mapping[str, str] = os.environ) -> None:
    """Hand files and folders that root owns, with all below them, to the user that sudo names; else do nothing.

    Standard library only: set-up calls it too.
    """
    user, group = environment.get("SUDO_UID", ""), environment.get("SUDO_GID", "")
    if os.geteuid() != 0 or not user.isdigit() or not group.isdigit():
        return
    for path in paths:
        if not path.is_symlink() and path.is_dir():
            give_back(path.iterdir(), environment)
        # the link itself, where it is one
        if path.lstat().st_uid == 0:
            os.chown(path, int(user), int(group), follow_symlinks=False)
