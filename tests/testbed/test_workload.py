"""Contexts and the schedule."""

import json

import pytest

from cachegen import InvalidInputError
from testbed.workload import Request, interleave, make_schedule, read_contexts, reference_contexts


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
    first, second = read_contexts(path, 2)

    assert (first.name, first.text) == ("mine-1", "one")
    assert (second.name, second.text, second.question) == ("b", "two", "why?")


def test_a_text_may_hold_any_line_end_that_json_lets_stand(tmp_path):
    text = "one\u2028two\x85three"
    path = tmp_path / "mine.jsonl"
    path.write_text("\ufeff" + json.dumps({"context": text}, ensure_ascii=False) + "\r\n", encoding="utf-8")

    assert [context.text for context in read_contexts(path, 4)] == [text]


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
    ],
)
def test_a_bad_line_is_named(tmp_path, content, message):
    path = tmp_path / "mine.jsonl"
    path.write_text(content)
    with pytest.raises(InvalidInputError, match=message):
        read_contexts(path, 4)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InvalidInputError, match=r"absent\.jsonl"):
        read_contexts(tmp_path / "absent.jsonl", 1)


def test_the_schedule_depends_on_the_seed_alone_and_its_start_on_no_length():
    long, short = make_schedule(8, 3, 60.0, seed=1), make_schedule(4, 3, 60.0, seed=1)
    assert long[:4] == short
    assert make_schedule(4, 3, 60.0, seed=2) != short
    assert [request.context for request in long] == [0, 1, 2, 0, 1, 2, 0, 1]
    assert all(0 <= request.trace_offset_s < 60 for request in long)
    assert len({request.trace_offset_s for request in long}) == 8


def test_every_method_serves_every_request_once_and_takes_each_place_in_turn():
    requests = [Request(index, 0, float(index)) for index in range(3)]
    order = interleave(requests, ["a", "b", "c"])

    assert sorted((request.index, method) for request, method in order) == [
        (index, method) for index in range(3) for method in "abc"
    ]
    assert {order[start][1] for start in (0, 3, 6)} == {"a", "b", "c"}
