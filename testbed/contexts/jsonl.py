"""The project's own form: ``{"context": ..., "question": ..., "id": ..., "answer": ..., "score": ...}``.

All but ``context`` may be left out. ``answer`` is a text or a list of texts, any of which is right; ``score`` says by
which of ``testbed.scores.SCORES`` an answer is judged, by default token F1.
"""

from cachegen import InvalidInputError
from testbed.contexts.base import (
    DEFAULT_QUESTION,
    ContextText,
    Place,
    Row,
    RowFormat,
    Task,
    answers_field,
    is_text,
    text_field,
)
from testbed.scores import SCORES

_DEFAULT_SCORE = "f1"


def _parse(row: Row, place: Place) -> ContextText:
    context = text_field(row, "context", place)
    optional = {"question": DEFAULT_QUESTION, "id": f"{place.stem}-{place.number}"} | {
        field: row[field] for field in ("question", "id") if field in row
    }
    for field, value in optional.items():
        if not is_text(value):
            raise InvalidInputError(f"{place}: {field} must be a text, not {value!r}")
    return ContextText(optional["id"], context, optional["question"], _task(row, place))


def _task(row: Row, place: Place) -> Task | None:
    score = row.get("score", _DEFAULT_SCORE)
    if not isinstance(score, str) or score not in SCORES:
        raise InvalidInputError(f"{place}: score must be one of {', '.join(SCORES)}, not {score!r}")
    return Task(answers_field(row, "answer", place), score) if "answer" in row else None


FORMAT = RowFormat(title='lines of {"context", "question", "answer"}', fields=frozenset({"context"}), parse=_parse)
