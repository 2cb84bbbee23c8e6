"""What a user names by its file."""

from pathlib import Path

from cachegen.errors import InvalidInputError


def read_bytes(path: Path) -> bytes:
    """Bytes of a file, whatever they are; InvalidInputError if it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidInputError(f"{path}: cannot be read: {error.strerror}") from error


def read_text(path: Path, max_characters: int | None = None) -> str:
    """Text of a UTF-8 file, or its beginning.

    Raises
    ------
    InvalidInputError
        The file cannot be read, or is not UTF-8; the message names the place.
    """
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(-1 if max_characters is None else max_characters)
    except OSError as error:
        raise InvalidInputError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"{path}: not UTF-8 text: {error}") from error
    if not text.strip():
        raise InvalidInputError(f"{path}: holds no text")
    return text
