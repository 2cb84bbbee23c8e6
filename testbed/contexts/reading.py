"""Read contexts from a file of any known form, recognised by its content."""

from pathlib import Path

from cachegen import InvalidInputError
from testbed.contexts import hard_needle, jsonl, longbench, longeval
from testbed.contexts.base import ContextText, Place, Row, RowFormat, is_text, parse_row
from testbed.contexts.plain_text import cut_text

# In order of detection: the first whose fields a row has. Adding one: a module here, and a line.
ROW_FORMATS: dict[str, RowFormat] = {
    "longeval-topics": longeval.TOPICS,
    "longeval-lines": longeval.LINES,
    "hard-needle": hard_needle.FORMAT,
    "longbench": longbench.FORMAT,
    "jsonl": jsonl.FORMAT,
}
_JSON_SUFFIXES = {".jsonl", ".json", ".ndjson"}


def read_contexts(path: Path, count: int, context_tokens: int) -> list[ContextText]:
    """The first ``count`` contexts of a file of JSON lines, or as many cut from a plain text.

    A file is taken for JSON lines if its name says so or its first line is a JSON object; of which form, the fields of
    its first row say.

    Raises
    ------
    InvalidInputError
        No such file, no text in it, or a line that is not of the file's form; the text names file and line.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"{path}: {error}") from error
    # not splitlines(): JSON text may hold the other line ends of Unicode as they are
    rows = [(number, line) for number, line in enumerate(text.split("\n"), start=1) if line.strip()]
    if not rows:
        raise InvalidInputError(f"{path}: holds no context")
    if path.suffix in _JSON_SUFFIXES or rows[0][1].lstrip().startswith("{"):
        return _parse_rows(path, rows[:count])
    if not is_text(text) or "\0" in text:
        raise InvalidInputError(f"{path}: is neither JSON lines nor a plain text")
    return cut_text(path.stem, text, count, context_tokens)


def _parse_rows(path: Path, lines: list[tuple[int, str]]) -> list[ContextText]:
    places = [Place(str(path), path.stem, number) for number, _ in lines]
    rows = [parse_row(line, place) for place, (_, line) in zip(places, lines, strict=True)]
    form = _form_of(rows[0], places[0])
    for row, place in zip(rows, places, strict=True):
        if missing := sorted(form.fields - row.keys()):
            raise InvalidInputError(f'{place}: needs a field "{missing[0]}", as {form.title} has')
    return [form.parse(row, place) for row, place in zip(rows, places, strict=True)]


def _form_of(row: Row, place: Place) -> RowFormat:
    for form in ROW_FORMATS.values():
        if form.fields <= row.keys():
            return form
    raise InvalidInputError(
        f'{place}: needs a field "context", or those of another known form: '
        + "; ".join(f"{form.title}: {', '.join(sorted(form.fields))}" for form in ROW_FORMATS.values())
    )
