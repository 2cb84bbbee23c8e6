"""The project's own form: ``{"context": ..., "question": ..., "id": ..., "answer": ..., "score": ...}``.

All but ``context`` may be left out. ``answer`` is a text or a list of texts, any of which is right; ``score`` says by
which of ``testbed.scores.SCORES`` an answer is judged, by default token F1.
"""

import re

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
from testbed.scores import SCORES, SCORES_OF_NUMBERS

_DEFAULT_SCORE = "f1"
# No longer than Python converts; no record to find is.
_WHOLE_NUMBER = re.compile("[0-9]{1,1000}")


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
    if "answer" not in row:
        return None
    answers = answers_field(row, "answer", place)
    if score in SCORES_OF_NUMBERS and (odd := [answer for answer in answers if not _WHOLE_NUMBER.fullmatch(answer)]):
        raise InvalidInputError(f"{place}: answer must be a whole number where score is {score}, not {odd[0]!r}")
    return Task(answers, score)


FORMAT = RowFormat(title='lines of {"context", "question", "answer"}', fields=frozenset({"context"}), parse=_parse)
