"""Rows of the package hard-needle: ``{"prompt", "target", "question", "needle_records", ...}``.

A prompt is a document with facts that look alike, and behind it the question about one of them, ending in "Answer:".
``target`` is a short text (a code, a date, an amount, a name): it is right wherever it stands in the answer.
"""

from cachegen import InvalidInputError
from testbed.contexts.base import ContextText, Place, Row, RowFormat, Task, text_field

_LABEL, _TURN = "\n\nQuestion: ", "\nAnswer:"


def _parse(row: Row, place: Place) -> ContextText:
    prompt, asked = text_field(row, "prompt", place), text_field(row, "question", place)
    document, found, rest = prompt.rpartition(asked)
    # a prompt without its question is a document alone
    text = document.removesuffix(_LABEL) if found else prompt
    if not text.strip():
        raise InvalidInputError(f"{place}: the prompt has no document before its question {asked!r}")
    question = prompt[len(text) :] if found and rest.strip() else f"{_LABEL}{asked}{_TURN}"
    return ContextText(
        name=f"hard-needle-{place.number}",
        text=text,
        question=question,
        task=Task((text_field(row, "target", place),), "topic"),
    )


FORMAT = RowFormat(
    title="hard-needle", fields=frozenset({"prompt", "target", "question", "needle_records"}), parse=_parse
)
