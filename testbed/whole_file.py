"""Files that appear whole or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a scratch path beside ``path``, and move it there once the with-block has ended well.

    Readers see the old file or the new one, never a part; a failure leaves the old one.
    """
    scratch = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield scratch
        scratch.replace(path)
    finally:
        scratch.unlink(missing_ok=True)
