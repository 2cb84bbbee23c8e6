"""Text and JSON of a run directory's files, read with errors that name the file."""

import json
from pathlib import Path
from typing import Any, NoReturn

from testbed.errors import RunFileError


def read_text(path: Path) -> str:
    """Return a file's text.

    Raises
    ------
    RunFileError
        It is not there, or no UTF-8.
    """
    try:
        # not read_text(): a line end inside a cell stays what it is
        return path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise RunFileError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise RunFileError(f"{path}: not UTF-8 text: {error}") from error


def read_object(path: Path) -> dict[str, Any]:
    """Return the JSON object that a file holds.

    Raises
    ------
    RunFileError
        It is not there, or holds no JSON object.
    """
    return parse_object(read_text(path), str(path))


def parse_object(text: str, place: str) -> dict[str, Any]:
    """Return the JSON object of a text; ``place`` is its name in errors.

    Raises
    ------
    RunFileError
        It is none.
    """
    try:
        document = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise RunFileError(f"{place}: not JSON: {error}") from error
    if not isinstance(document, dict):
        raise RunFileError(f"{place}: must be a JSON object, not {type(document).__name__}")
    return document


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")
