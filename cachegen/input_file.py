"""What a user names by its file."""

import errno
import os
import stat
from pathlib import Path

from cachegen.allocation import memory_for
from cachegen.errors import InvalidInputError

# More than any context has, so that a device without an end is found out.
_MOST_CHARACTERS = 1 << 26


def read_bytes(path: Path, max_bytes: int) -> bytes:
    """Bytes of a regular file, whatever they are.

    Raises
    ------
    InvalidInputError
        It cannot be read, is a device or a pipe, which need not end, or has more than ``max_bytes``.
    MemoryLimitError
        There is no memory for it.
    """
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not stat.S_ISREG(status.st_mode):
            raise InvalidInputError(f"{path}: is a device or a pipe, must be a file")
        if status.st_size > max_bytes:
            raise InvalidInputError(f"{path}: has {status.st_size:,} bytes, at most {max_bytes:,}")
        with memory_for(str(path), status.st_size):
            return path.read_bytes()
    except OSError as error:
        raise InvalidInputError(f"{path}: cannot be read: {error.strerror}") from error


def read_text(path: Path, max_characters: int | None = None) -> str:
    """Text of a UTF-8 file or pipe, or its beginning.

    Raises
    ------
    InvalidInputError
        The file cannot be read, is not UTF-8, or, where no beginning is asked for, need not end; the message names it.
    """
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(_MOST_CHARACTERS + 1 if max_characters is None else max_characters)
    except OSError as error:
        raise InvalidInputError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"{path}: not UTF-8 text: {error}") from error
    if max_characters is None and len(text) > _MOST_CHARACTERS:
        raise InvalidInputError(f"{path}: has more than {_MOST_CHARACTERS:,} characters")
    if not text.strip():
        raise InvalidInputError(f"{path}: holds no text")
    return text
