"""Contexts of every source: recognised by their content, and a bad line is named."""

import json
import re
from pathlib import Path

import pytest

from cachegen import InvalidInputError, UnknownNameError
from testbed.contexts import GENERATORS, Task, load_contexts
from testbed.contexts.needle import NEEDLES, needle_contexts
from testbed.contexts.reading import ROW_FORMATS, read_contexts
from testbed.contexts.reference import reference_contexts
from testbed.scores import SCORES, score_answer

LONGEVAL = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "longeval"


def write_rows(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def hard_needle(prompt, question):
    return {"prompt": prompt, "target": "ABC-1234", "question": question, "needle_records": [], "num_needles": 3}


def test_reference_contexts_are_long_english_and_differ():
    contexts = reference_contexts(4, 2048)
    assert len({context.text for context in contexts}) == 4
    for context in contexts:
        assert len(context.text) == 2048 * 8
        assert context.text.count(" the ") > 50
        assert context.question


def test_contexts_are_read_with_defaults_for_what_a_line_leaves_out(tmp_path):
    path = tmp_path / "mine.jsonl"
    path.write_text('{"context": "one"}\n\n{"context": "two", "question": "why?", "id": "b"}\n{"context": "three"}\n')
    first, second = read_contexts(path, 2, 100)

    assert (first.name, first.text) == ("mine-1", "one")
    assert (second.name, second.text, second.question) == ("b", "two", "why?")


def test_a_text_may_hold_any_line_end_that_json_lets_stand(tmp_path):
    text = "one\u2028two\x85three"
    path = tmp_path / "mine.jsonl"
    path.write_text("\ufeff" + json.dumps({"context": text}, ensure_ascii=False) + "\r\n", encoding="utf-8")

    assert [context.text for context in read_contexts(path, 4, 100)] == [text]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "holds no context"),
        ('{"context": "a"}\n{broken', "mine.jsonl:2: not JSON"),
        ('{"text": "a"}', 'mine.jsonl:1: needs a field "context"'),
        ('{"context": ""}', 'mine.jsonl:1: needs a field "context"'),
        ('{"context": "a", "question": 3}', "mine.jsonl:1: question must be a text, not 3"),
        ('{"context": "half \\ud800 pair"}', 'mine.jsonl:1: needs a field "context"'),
        ('{"context": "a", "id": null}', "mine.jsonl:1: id must be a text, not None"),
        ("[1]", 'mine.jsonl:1: needs a field "context"'),
        (
            '{"context": "a", "answer": ["7", "seven"], "score": "number"}',
            "mine.jsonl:1: answer must be a whole number where score is number, not 'seven'",
        ),
    ],
)
def test_a_bad_line_is_named(tmp_path, content, message):
    path = tmp_path / "mine.jsonl"
    path.write_text(content)
    with pytest.raises(InvalidInputError, match=message):
        read_contexts(path, 4, 100)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InvalidInputError, match=r"absent\.jsonl"):
        read_contexts(tmp_path / "absent.jsonl", 1, 100)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"context": "a", "answer": 3}, 'needs a field "answer" with a text or a list of texts'),
        ({"context": "a", "answer": []}, 'needs a field "answer"'),
        ({"context": "a", "answer": "b", "score": "bleu"}, "score must be one of topic, .*exact_match, not 'bleu'"),
        ({"context": "a", "input": "q", "dataset": "qasper", "answers": "x", "more": 1}, None),
        ({"context": "a", "input": 3, "dataset": "qasper", "answers": ["x"]}, "input must be a text, not 3"),
        ({"context": "a", "input": "q", "dataset": "qasper", "answers": [1]}, 'needs a field "answers"'),
        (hard_needle("Question: Who?\nAnswer:", "Who?") | {"target": 4}, 'needs a field "target" with a text'),
        (hard_needle("Who?\nAnswer:", "Who?"), "the prompt has no document before its question 'Who[?]'"),
        ({"prompt": "no end", "topics": ["x"]}, "the prompt has no 'Now the record ends.' behind a record"),
        ({"prompt": "a Now the record ends. What?", "topics": []}, 'needs a field "topics"'),
        (
            {"prompt": "a\nNow the record is over. What?", "expected_number": "7"},
            "expected_number must be a whole number",
        ),
    ],
)
def test_a_bad_row_of_each_form_is_named(tmp_path, row, message):
    path = write_rows(tmp_path / "mine.jsonl", row)
    if message is None:
        assert len(read_contexts(path, 1, 100)) == 1
        return
    with pytest.raises(InvalidInputError, match=f"mine.jsonl:1: .*{message}"):
        read_contexts(path, 1, 100)


def test_a_file_of_two_forms_is_refused_at_the_first_other_line(tmp_path):
    path = write_rows(
        tmp_path / "mine.jsonl",
        {"context": "a", "input": "q", "dataset": "qasper", "answers": ["x"]},
        {"context": "b", "question": "why?"},
    )
    with pytest.raises(InvalidInputError, match=r'mine\.jsonl:2: needs a field "answers", as LongBench has'):
        read_contexts(path, 2, 100)


def test_the_projects_own_form_may_say_what_is_right_and_how_it_is_judged(tmp_path):
    path = write_rows(
        tmp_path / "mine.jsonl",
        {"context": "a", "answer": "b"},
        {"context": "a", "answer": ["b", "c"], "score": "exact_match"},
        {"context": "a"},
    )
    tasks = [context.task for context in read_contexts(path, 3, 100)]
    assert tasks == [Task(("b",), "f1"), Task(("b", "c"), "exact_match"), None]


def test_longbench_rows_ask_behind_the_context_and_score_question_answering_alone(tmp_path):
    rows = [
        {"input": "Who?", "context": "text", "answers": ["A", "B"], "length": 1, "dataset": dataset, "_id": "7"}
        for dataset in ("hotpotqa", "qasper_e", "trec")
    ]
    rows.append({**rows[0], "input": "", "dataset": "gov_report"})
    found = read_contexts(write_rows(tmp_path / "x.jsonl", *rows), 4, 100)

    assert [context.name for context in found] == ["hotpotqa-7", "qasper_e-7", "trec-7", "gov_report-7"]
    assert [context.task for context in found] == [Task(("A", "B"), "f1")] * 2 + [None, None]
    assert found[0].question == "\n\nQuestion: Who?\nAnswer:"
    assert "Question" not in found[3].question


def test_hard_needle_prompts_are_cut_before_their_question(tmp_path):
    asked = "What is the special project code for Mango?"
    document = f"Read.\n\nDocument:\nHe said: {asked} The special project code for Mango is ABC-1234."
    rows = [
        hard_needle(f"{document}\n\nQuestion: {asked}\nAnswer:", asked),
        hard_needle(document.replace(asked, "nothing."), asked),
        hard_needle(f"{document}\n{asked}", asked),
    ]
    found = read_contexts(write_rows(tmp_path / "x.jsonl", *rows), 9, 100)

    assert [context.text for context in found] == [document, document.replace(asked, "nothing."), f"{document}\n"]
    assert {context.question for context in found} == {f"\n\nQuestion: {asked}\nAnswer:"}
    assert [context.name for context in found] == ["hard-needle-1", "hard-needle-2", "hard-needle-3"]
    assert {context.task for context in found} == {Task(("ABC-1234",), "topic")}
    assert score_answer("topic", " It is ABC-1234.", ["ABC-1234"]) == 1
    assert score_answer("topic", " ABC-1235", ["ABC-1234"]) == 0


def test_longeval_prompts_are_cut_into_record_and_question(tmp_path):
    topics = {
        "test_id": 4,
        "prompt": "Below is a record. USER: tea. Now the record ends. What is the first topic? \n",
        "topics": ["Tea", "Rain"],
        "prompt_length": -1,
    }
    lines = {"prompt": "line a: <12>\n\nNow the record is over. Line a? ", "expected_number": 12, "num_lines": 1}
    (topic,) = read_contexts(write_rows(tmp_path / "topics.jsonl", topics), 9, 100)
    (line,) = read_contexts(write_rows(tmp_path / "lines.jsonl", lines), 9, 100)

    assert topic.text == "Below is a record. USER: tea."
    assert topic.question == " Now the record ends. What is the first topic?\n ASSISTANT:"
    assert (topic.name, topic.task) == ("topics-4", Task(("Tea",), "topic"))
    assert (line.text, line.task) == ("line a: <12>\n", Task(("12",), "number"))
    assert line.question == "\nNow the record is over. Line a?\n ASSISTANT:"


@pytest.mark.skipif(not LONGEVAL.exists(), reason="LongEval's own files do not lie beside this checkout")
@pytest.mark.parametrize(
    ("name", "score"),
    [("1_topics", "topic"), ("5_topics", "topic"), ("10_topics", "topic"), ("200_lines", "number")],
)
def test_every_row_of_longevals_own_files_is_read(name, score):
    contexts = read_contexts(LONGEVAL / f"{name}.jsonl", 99, 100)

    assert len(contexts) == 25
    for context in contexts:
        assert context.task.score == score
        right = context.task.expected[0]
        assert right.lower() in context.text.lower()
        assert 50 < len(context.question) < 200
        assert score_answer(score, f"It is {right}.", context.task.expected) == 1
        assert score_answer(score, "I do not know.", context.task.expected) == 0


def test_a_plain_text_is_cut_evenly_and_told_from_json_by_its_content(tmp_path):
    path = tmp_path / "book"
    path.write_text("".join(f"line {number} of a book\n" for number in range(1000)))
    contexts = read_contexts(path, 3, 20)

    assert [context.name for context in contexts] == ["book-0", "book-1", "book-2"]
    assert len({context.text for context in contexts}) == 3
    assert all(context.text.startswith("line ") and context.task is None for context in contexts)

    path.write_text('{"context": "one"}\n')
    assert [context.text for context in read_contexts(path, 3, 20)] == ["one"]


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"nothing\0but bytes"])
def test_a_file_that_is_no_text_is_refused(tmp_path, content):
    (tmp_path / "data.bin").write_bytes(content)
    with pytest.raises(InvalidInputError, match=r"data\.bin"):
        read_contexts(tmp_path / "data.bin", 1, 100)


def test_names_are_generators_and_all_else_is_a_path(tmp_path):
    for name in GENERATORS:
        assert len(load_contexts(name, 2, 256, 0)) == 2
    with pytest.raises(UnknownNameError, match=r"no contexts named 'mine'; known: reference, needle.*as in \./mine"):
        load_contexts("mine", 1, 100, 0)
    with pytest.raises(InvalidInputError, match=r"absent\.jsonl"):
        load_contexts(str(tmp_path / "absent.jsonl"), 1, 100, 0)


def test_one_needle_of_several_that_look_alike_is_asked_for():
    for context in needle_contexts(5, 1024, seed=3):
        found = dict(re.findall(r"The access code of depot (\w+-\d+) is (\d+)\.", context.text))
        (asked,) = re.findall(r"depot (\w+-\d+)\?", context.question)

        assert len(found) == len(set(found.values())) == NEEDLES
        assert len({name.partition("-")[0] for name in found}) == 1
        assert context.task == Task((found[asked],), "needle")
        # spread over the whole, and not too long for the context
        places = [context.text.index(code) / len(context.text) for code in found.values()]
        assert max(places) - min(places) > 0.5
        assert len(context.text) <= 1024 * 3.5


def test_needles_depend_on_the_seed_alone():
    long, short = needle_contexts(4, 512, seed=1), needle_contexts(2, 512, seed=1)
    assert long[:2] == short
    assert needle_contexts(2, 512, seed=2) != short
    assert len({context.text for context in long}) == 4


def test_every_form_and_score_has_a_place_in_the_documentation():
    page = (Path(__file__).resolve().parents[2] / "docs" / "workloads.md").read_text(encoding="utf-8")
    for name in [*ROW_FORMATS, *GENERATORS, *SCORES]:
        assert f"`{name}`" in page
