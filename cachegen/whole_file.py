"""Files that appear whole or not at all."""

import os
import uuid
from pathlib import Path


def write_whole(path: str | Path, data: bytes) -> None:
    """Write a file, in place of one that is there; a write that is interrupted leaves all as it was."""
    target = Path(path)
    partial = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
    try:
        with partial.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
