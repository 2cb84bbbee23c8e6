"""What a source of contexts gives: a long text, the question about it and, where there is one, the expected answer."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from cachegen import InvalidInputError

DEFAULT_QUESTION = "\n\nQuestion: What is described above? Answer in one sentence.\nAnswer:"

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Task:
    """What the answer to a context's question should be.

    Parameters
    ----------
    expected : tuple of str
        Answers that are right; one of them is enough.
    score : str
        Name in ``testbed.scores.SCORES``.
    """

    expected: tuple[str, ...]
    score: str


@dataclass(frozen=True)
class ContextText:
    """A long text and the question about it; no task where nobody knows the answer."""

    name: str
    text: str
    question: str
    task: Task | None = None


@dataclass(frozen=True)
class Place:
    """A line of a file, as error texts name it; ``stem`` is the file's name without its suffix."""

    path: str
    stem: str
    number: int

    def __str__(self) -> str:
        return f"{self.path}:{self.number}"


@dataclass(frozen=True)
class RowFormat:
    """A form of JSON lines, one context each.

    Parameters
    ----------
    title : str
        What it is, for error texts and the documentation.
    fields : frozenset of str
        Fields that tell it from the others: a file whose first row has them all is of this form.
    parse : callable
        From a row and its place to a context; raises InvalidInputError.
    """

    title: str
    fields: frozenset[str]
    parse: Callable[[Row, Place], ContextText] = field(repr=False)


def parse_row(line: str, place: Place) -> Row:
    """Parse a line that must be a JSON object.

    Raises
    ------
    InvalidInputError
        It is not; the text names the line.
    """
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(f"{place}: not JSON: {error}") from error
    if not isinstance(row, dict):
        raise InvalidInputError(f'{place}: needs a field "context" in an object, not {line.strip()[:40]}')
    return row


def text_field(row: Row, name: str, place: Place) -> str:
    """Return a field that must be a text.

    Raises
    ------
    InvalidInputError
        It is missing, empty, or no text.
    """
    if name not in row or not is_text(row[name]):
        raise InvalidInputError(f'{place}: needs a field "{name}" with a text')
    return str(row[name])


def answers_field(row: Row, name: str, place: Place) -> tuple[str, ...]:
    """Return a field that must be a text or a list of texts, at least one.

    Raises
    ------
    InvalidInputError
        It is missing, or something else.
    """
    value = row.get(name)
    answers = tuple(value) if isinstance(value, list) else (value,)
    if not answers or not all(map(is_text, answers)):
        raise InvalidInputError(f'{place}: needs a field "{name}" with a text or a list of texts')
    return answers


def is_text(value: object) -> bool:
    """Whether a value of JSON is a text that a tokenizer takes."""
    # half a surrogate pair is no character: JSON can spell it, no tokenizer takes it
    return isinstance(value, str) and value != "" and not any("\ud800" <= letter <= "\udfff" for letter in value)
