"""Where converted models and profiles are kept between runs, and how they get there whole or not at all."""

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path


def cache_dir() -> Path:
    """``$XDG_CACHE_HOME/cachegen``, by default ``~/.cache/cachegen``."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "cachegen"


def build_folder_once(target: Path, build: Callable[[Path], None]) -> Path:
    """Return ``target``, built first where it is missing.

    ``build`` fills a temporary folder beside it, which is renamed when complete: a crash leaves no half a folder,
    and of two processes that build at once the second uses what the first one finished.
    """
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
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
