"""Where converted models and profiles are kept between runs, and how they get there whole or not at all."""

import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path


def cache_dir() -> Path:
    """``$XDG_CACHE_HOME/cachegen``, by default ``~/.cache/cachegen``."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "cachegen"


# No build takes this long; a folder that is older was left by a process that was killed.
_ABANDONED_S = 3600.0


def build_folder_once(target: Path, build: Callable[[Path], None]) -> Path:
    """Return ``target``, built first where it is missing.

    ``build`` fills a temporary folder beside it, which is renamed when complete: ``target`` is there whole or not at
    all, and of two processes that build at once the second uses what the first one finished. What a killed process
    left is removed an hour later.
    """
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    for leftover in target.parent.glob(f".{target.name}-*"):
        if time.time() - leftover.stat().st_mtime > _ABANDONED_S:
            shutil.rmtree(leftover, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}-") as scratch:
        made = Path(scratch) / "made"
        made.mkdir()
        build(made)
        try:
            made.rename(target)
        except OSError:
            if not target.is_dir():
                raise
            shutil.rmtree(made)
    return target
