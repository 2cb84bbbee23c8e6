"""What is asked of the system: contexts with questions, and when each request meets which stretch of the trace."""

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from pydoc_data.topics import topics
from typing import TypeVar

from cachegen import InvalidInputError

_DEFAULT_QUESTION = "\n\nQuestion: What is described above? Answer in one sentence.\nAnswer:"
# Long enough for any tokenizer: English has about four characters a token.
_CHARACTERS_PER_TOKEN = 8

B = TypeVar("B")
M = TypeVar("M")


@dataclass(frozen=True)
class ContextText:
    """A long text and the question about it."""

    name: str
    text: str
    question: str


@dataclass(frozen=True)
class Request:
    """One request of the schedule; every method serves it once.

    Parameters
    ----------
    index : int
        Place in the schedule.
    context : int
        Index of its context.
    trace_offset_s : float
        Where in the trace the link is when the request arrives.
    arrival_s : float
        Seconds since its batch began, see :mod:`testbed.arrivals`.
    """

    index: int
    context: int
    trace_offset_s: float
    arrival_s: float = 0.0


def reference_contexts(count: int, context_tokens: int) -> list[ContextText]:
    """Contexts from Python's language reference, which every Python ships, spread evenly over it."""
    book = "\n\n".join(topics[name] for name in sorted(topics))
    length = context_tokens * _CHARACTERS_PER_TOKEN
    starts = [index * len(book) // count for index in range(count)]
    # from the next line on; round the end of the book, so that the last one is as long as the rest
    starts = [book.find("\n", start) + 1 for start in starts]
    endless = book + "\n\n" + book[:length]
    return [
        ContextText(f"python-reference-{index}", endless[start : start + length], _DEFAULT_QUESTION)
        for index, start in enumerate(starts)
    ]


def read_contexts(path: Path, count: int) -> list[ContextText]:
    """Contexts from a JSON-lines file: ``{"context": text, "question": text, "id": name}``, the last two optional.

    Raises
    ------
    InvalidInputError
        No such file, or a line that is not such an object; the text names the line.
    """
    try:
        # not splitlines(): JSON text may hold the other line ends of Unicode as they are
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"{path}: {error}") from error
    rows = [(number, line) for number, line in enumerate(lines, start=1) if line.strip()]
    if not rows:
        raise InvalidInputError(f"{path}: holds no context")
    return [_parse_context(path, number, line) for number, line in rows[:count]]


def _parse_context(path: Path, number: int, line: str) -> ContextText:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise InvalidInputError(f"{path}:{number}: not JSON: {error}") from error
    if not isinstance(row, dict) or not _is_text(row.get("context")):
        raise InvalidInputError(f'{path}:{number}: needs a field "context" with a text')
    optional = {"question": _DEFAULT_QUESTION, "id": f"{path.stem}-{number}"} | {
        field: row[field] for field in ("question", "id") if field in row
    }
    for field, value in optional.items():
        if not _is_text(value):
            raise InvalidInputError(f"{path}:{number}: {field} must be a text, not {value!r}")
    return ContextText(optional["id"], row["context"], optional["question"])


def _is_text(value: object) -> bool:
    # half a surrogate pair is no character: JSON can spell it, no tokenizer takes it
    return isinstance(value, str) and value != "" and not any("\ud800" <= letter <= "\udfff" for letter in value)


def make_schedule(requests: int, num_contexts: int, trace_period_s: float, seed: int) -> list[Request]:
    """Seeded trace offsets, uniform over the trace, so that no request meets the trace's beginning by rule."""
    return [
        Request(
            index=index,
            context=index % num_contexts,
            trace_offset_s=random.Random(f"{seed}/{index}").uniform(0.0, trace_period_s),
        )
        for index in range(requests)
    ]


def interleave(batches: Sequence[B], methods: Sequence[M]) -> list[tuple[B, M]]:
    """Every batch under every method; the order of methods rotates, so that none profits from its place."""
    return [
        (batch, methods[(place + number) % len(methods)])
        for number, batch in enumerate(batches)
        for place in range(len(methods))
    ]
