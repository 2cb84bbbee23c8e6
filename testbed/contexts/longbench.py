"""LongBench rows: ``{"input", "context", "answers", "length", "dataset", "language", "all_classes", "_id"}``.

Source: Bai et al., LongBench, ACL 2024 (arXiv:2308.14508), whose prompts say context first and question last. Of its
measures there is token F1 here, which it uses for question answering in English; rows of its other datasets
(summaries, classification, code ...) are served without a score.
"""

from cachegen import InvalidInputError
from testbed.contexts.base import ContextText, Place, Row, RowFormat, Task, answers_field, text_field

_SCORED_BY_F1 = {
    "narrativeqa",
    "qasper",
    "multifieldqa_en",
    "hotpotqa",
    "2wikimqa",
    "musique",
    "triviaqa",
}
# LongBench-E is the same data, spread evenly over lengths
_EVEN_SUFFIX = "_e"


def _parse(row: Row, place: Place) -> ContextText:
    dataset = text_field(row, "dataset", place)
    answers = answers_field(row, "answers", place)
    asked = row["input"]
    # for a summary LongBench asks nothing: the field is there, and empty
    if not isinstance(asked, str):
        raise InvalidInputError(f"{place}: input must be a text, not {asked!r}")
    question = f"\n\nQuestion: {asked}\nAnswer:" if asked else "\n\nSummary:"
    scored = dataset.removesuffix(_EVEN_SUFFIX) in _SCORED_BY_F1
    return ContextText(
        name=f"{dataset}-{row.get('_id', place.number)}",
        text=text_field(row, "context", place),
        question=question,
        task=Task(answers, "f1") if scored else None,
    )


FORMAT = RowFormat(title="LongBench", fields=frozenset({"context", "input", "answers", "dataset"}), parse=_parse)
