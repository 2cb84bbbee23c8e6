"""LongEval test cases, of LongChat: a chat about several topics, or many named lines; the prompt ends in a question.

Source: Li et al., "How long can open-source LLMs truly promise on context length?", LMSYS 2023, longeval/ of LongChat:
``{"test_id", "prompt", "topics", "prompt_length"}`` and ``{"random_idx", "expected_number", "num_lines",
"correct_line", "prompt", ...}``.
"""

from cachegen import InvalidInputError
from testbed.contexts.base import ContextText, Place, Row, RowFormat, Task, answers_field, text_field

_TOPICS_QUESTION = " Now the record ends."
_LINES_QUESTION = "\nNow the record is over."
# how the record itself spells that the model's turn begins
_TURN = "\n ASSISTANT:"


def _parse_topics(row: Row, place: Place) -> ContextText:
    record, question = _split(row, _TOPICS_QUESTION, place)
    first_topic = answers_field(row, "topics", place)[0]
    return ContextText(f"topics-{row.get('test_id', place.number)}", record, question, Task((first_topic,), "topic"))


def _parse_lines(row: Row, place: Place) -> ContextText:
    record, question = _split(row, _LINES_QUESTION, place)
    number = row["expected_number"]
    if type(number) is not int:
        raise InvalidInputError(f"{place}: expected_number must be a whole number, not {number!r}")
    return ContextText(f"lines-{place.number}", record, question, Task((str(number),), "number"))


def _split(row: Row, marker: str, place: Place) -> tuple[str, str]:
    """Cut a prompt into the record and the question behind it."""
    record, found, question = text_field(row, "prompt", place).rpartition(marker)
    if not (found and record):
        raise InvalidInputError(f"{place}: the prompt has no {marker.strip()!r} behind a record")
    return record, f"{marker}{question.rstrip()}{_TURN}"


TOPICS = RowFormat(title="LongEval topics", fields=frozenset({"prompt", "topics"}), parse=_parse_topics)
LINES = RowFormat(title="LongEval lines", fields=frozenset({"prompt", "expected_number"}), parse=_parse_lines)
