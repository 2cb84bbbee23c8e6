"""JSON from outside: one object, no field twice, no nesting without end."""

import json
import reprlib
from collections import Counter
from typing import Any

from cachegen.errors import FormatError

_SHOWN_CHARACTERS = 80
# a value may be nested as deeply as the interpreter could just parse
_REPR = reprlib.Repr()
_REPR.maxlevel, _REPR.maxstring = 3, _SHOWN_CHARACTERS


def parse_object(text: str | bytes) -> dict[str, Any]:
    """Object that a JSON text holds.

    Raises
    ------
    FormatError
        Not JSON, not an object, or a field that stands twice in one object.
    """
    try:
        document = json.loads(text, object_pairs_hook=_refuse_duplicates)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"not JSON: {error}") from error
    if not isinstance(document, dict):
        raise FormatError(f"must be a JSON object, not {shown(document)}")
    return document


def shown(value: object) -> str:
    """Value as an error's text shows it: cut where it is long or nested deeply."""
    text = _REPR.repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[: _SHOWN_CHARACTERS - 3]}..."


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) != len(pairs):
        [(duplicate, _)] = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"field {shown(duplicate)} stands twice in one object")
    return document
