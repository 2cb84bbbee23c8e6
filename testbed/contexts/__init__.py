"""Sources of contexts: generators by name, and files of any form that ``testbed.contexts.reading`` knows."""

from collections.abc import Callable
from pathlib import Path

from cachegen import UnknownNameError
from testbed.contexts.base import ContextText, Task
from testbed.contexts.needle import needle_contexts
from testbed.contexts.reading import read_contexts
from testbed.contexts.reference import reference_contexts

__all__ = ["GENERATORS", "ContextText", "Task", "is_generator_name", "load_contexts"]

# name -> function of count, context_tokens and seed. Adding one: a module here, and a line.
GENERATORS: dict[str, Callable[[int, int, int], list[ContextText]]] = {
    "reference": reference_contexts,
    "needle": needle_contexts,
}


def is_generator_name(text: str) -> bool:
    """Return whether a text means a generator; everything else is a path."""
    return "/" not in text and not Path(text).suffix


def load_contexts(name_or_path: str, count: int, context_tokens: int, seed: int) -> list[ContextText]:
    """Contexts of a generator (``needle``) or from a file.

    A text without a slash and without a suffix is a name; everything else is a path.

    Parameters
    ----------
    count : int
        How many; a file of JSON lines may have fewer.
    context_tokens : int
        Longest context that will be used of them.
    seed : int
        For those generators that draw.

    Raises
    ------
    UnknownNameError
        No generator has that name.
    InvalidInputError
        The file cannot be read, or is of no known form; the text names file and line.
    """
    if not is_generator_name(name_or_path):
        return read_contexts(Path(name_or_path), count, context_tokens)
    if name_or_path not in GENERATORS:
        known = ", ".join(GENERATORS)
        raise UnknownNameError(
            f"no contexts named {name_or_path!r}; known: {known}; a file needs its path, as in ./{name_or_path}"
        )
    return GENERATORS[name_or_path](count, context_tokens, seed)
